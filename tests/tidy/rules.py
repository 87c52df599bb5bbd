"""The rules of the house, each a function from a tree {path: text} to findings (path, line, what).

A rule's docstring is what CONTRIBUTING.md promises. tests/tidy/samples.py holds, for every rule, a
sample that it must catch.
"""

import fnmatch
import posixpath
import re

from cpp_text import arguments, code_only, functions
from private_names import private_names

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
FILE_BYTES_MAX = 1 << 20

FOLDERS = ("core", "memory", "storage", "transport", "inference", "actors", "cli")
TOP = FOLDERS + ("cmake", "configs", "deploy", "docs", "scripts", "tests")

# Which project folders a file may include, by the longest prefix of its own path.
MAY_INCLUDE = {
    "core": ("core",),
    "memory": ("core", "memory"),
    "storage": ("core", "memory", "storage"),
    "transport/device": ("core", "memory", "transport/device"),
    "transport/engine": ("core", "memory", "transport/device", "transport/engine"),
    "transport/directory": ("core", "memory", "transport/directory"),
    "transport/grpc": ("core", "memory", "transport/device", "transport/directory",
                       "transport/engine", "transport/grpc", "transport/peer"),
    "transport/http": ("core", "transport/http"),
    "transport/peer": ("core", "memory", "transport/device", "transport/peer"),
    "inference": ("core", "memory", "inference"),
    "actors": ("core", "memory", "storage", "transport", "inference", "actors"),
    "cli": FOLDERS,
    "tests": FOLDERS + ("tests",),
}

# Libraries that stay behind one door: include prefix -> path prefixes that may use it.
LIBRARY_HOMES = {
    "caf/": ("actors/", "cli/", "tests/"),
    "boost/beast": ("transport/http/request_reader.cpp",),
    "numa": ("memory/",),
    "grpc": ("transport/grpc/", "actors/", "cli/", "tests/"),
    "prometheus/": ("actors/", "tests/"),
    "liburing": ("storage/",),
    "ucp/": ("transport/peer/",),
    "doctest/": ("tests/",),
}

# Pattern in code -> (why, path prefixes where it is allowed).
BANNED = {
    r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|(?<![\w.>])sleep\s*\(":
        ("wait for a condition, not for time to pass", ()),
    r"(?<![\w.>])s?rand\s*\(|\brandom_device\b|\bmt19937":
        ("randomness comes from core/random.hpp", ("core/random.",)),
    r"\bsteady_clock::now\b|\bhigh_resolution_clock\b":
        ("time comes from core/clock.hpp", ("core/clock.hpp",)),
    r"\bchrono::system_clock::now\b|(?<![\w.>])(gettimeofday|time\s*\(\s*(NULL|nullptr|0))":
        ("wall clock: log lines and gRPC deadlines only", ("core/log.cpp", "transport/grpc/")),
    r"\bcaf::infinite\b": ("every request has a deadline", ("tests/",)),
    r"\.\s*detach\s*\(\s*\)": ("a thread has an owner who joins it", ()),
    r"\busing\s+namespace\s+std\s*;": ("say std::", ()),
    r"(?m)^\s*#\s*define\b": ("no macros of our own", ("tests/",)),
}

VAGUE = {"manager", "helper", "helpers", "util", "utils", "common", "data", "info"}


def is_cpp(path):
    return path.endswith((".cpp", ".hpp"))


def is_text(path):
    """Files written by people. Corpora and recorded input are bytes to us."""
    return not path.startswith(("tests/fuzz/corpus/", "tests/data/")) and path != "LICENSE"


def is_tidy(path):
    """This checker spells out everything it bans."""
    return path.startswith("tests/tidy/")


def lines_of(text):
    return enumerate(text.split("\n"), 1)


def line_at(text, offset):
    return text.count("\n", 0, offset) + 1


def includes(text):
    for match in re.finditer(r'(?m)^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text):
        yield line_at(text, match.start()), match.group(1) == '"', match.group(2)


def long_lines(tree):
    """A line of code has at most 100 columns."""
    for path, text in tree.items():
        if path.endswith((".cpp", ".hpp", ".py", ".proto", ".sh", "CMakeLists.txt", ".cmake")):
            for number, line in lines_of(text):
                if len(line) > COLUMNS_MAX:
                    yield path, number, f"{len(line)} columns, at most {COLUMNS_MAX}"


def long_functions(tree):
    """A function has at most 70 lines."""
    for path, text in tree.items():
        if is_cpp(path):
            for first, count in functions(text):
                if count > FUNCTION_LINES_MAX:
                    yield path, first, f"function of {count} lines, at most {FUNCTION_LINES_MAX}"


def long_files(tree):
    """A source file has at most 500 lines."""
    for path, text in tree.items():
        count = text.count("\n")
        if path.endswith((".cpp", ".hpp", ".py")) and count > FILE_LINES_MAX:
            yield path, count, f"{count} lines, at most {FILE_LINES_MAX}"


def library_homes(tree):
    """CAF only under actors, cli, tests; Beast only in the HTTP server; libnuma only in memory."""
    for path, text in tree.items():
        if is_cpp(path):
            for number, _, name in includes(text):
                for prefix, homes in LIBRARY_HOMES.items():
                    if name.startswith(prefix) and not path.startswith(homes):
                        yield path, number, f"<{name}> belongs to {', '.join(homes)}"
                if name == "caf/all.hpp" and not path.startswith("tests/"):
                    yield path, number, "caf/all.hpp costs seconds a file: include what is used"


def dependency_direction(tree):
    """cli -> actors -> { inference, storage, transport } -> memory -> core, never the other way."""
    for path, text in tree.items():
        if not is_cpp(path):
            continue
        homes = [home for home in MAY_INCLUDE if path.startswith(home + "/")]
        if not homes:
            yield path, 1, "C++ outside the folders of the layout"
            continue
        allowed = MAY_INCLUDE[max(homes, key=len)]
        for number, quoted, name in includes(text):
            if name.split("/")[0] in FOLDERS + ("tests",) and "/" in name:
                if not name.startswith(tuple(a + "/" for a in allowed)):
                    yield path, number, f"must not depend on {name}"


def unknown_includes(tree):
    """Quoted includes name a file of the tree by its path from the root."""
    for path, text in tree.items():
        if is_cpp(path):
            for number, quoted, name in includes(text):
                if quoted and name not in tree and not name.endswith(".pb.h"):
                    yield path, number, f'no file "{name}" from the root'


def banned_calls(tree):
    """No sleeps, no other clock, no other randomness, no infinite waits, no detached threads."""
    for path, text in tree.items():
        if is_cpp(path):
            code = code_only(text)
            for pattern, (why, allowed) in BANNED.items():
                if path.startswith(allowed):
                    continue
                for match in re.finditer(pattern, code):
                    number = line_at(code, match.start() + len(match.group()) - 1)
                    yield path, number, f"{match.group().strip()}: {why}"


def one_handler_requests(tree):
    """`.then(` and `.await(` get an error handler: without one an error kills the requester."""
    for path, text in tree.items():
        if is_cpp(path) and path.startswith(("actors/", "cli/")):
            code = code_only(text)
            for match in re.finditer(r"\.\s*(then|await)\s*\(", code):
                if arguments(code, match.end() - 1) == 1:
                    number = line_at(code, match.start())
                    yield path, number, f".{match.group(1)}( without error handler"


def leftovers(tree):
    """TODO and its kin name an issue: TODO(#12)."""
    for path, text in tree.items():
        if is_text(path) and not is_tidy(path):
            for number, line in lines_of(text):
                if re.search(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))", line):
                    yield path, number, "leftover without an issue number"


def header_shape(tree):
    """A header starts with #pragma once and a comment that says what it is for."""
    for path, text in tree.items():
        if path.endswith(".hpp"):
            head = text.split("\n", 2) + ["", ""]
            if head[0] != "#pragma once":
                yield path, 1, "first line is not #pragma once"
            if not re.match(r"// \S.{8}", head[1]):
                yield path, 2, "second line does not say what the header is for"
            for number, line in lines_of(code_only(text)):
                if re.match(r"\s*using\s+namespace\b", line):
                    yield path, number, "using namespace in a header"


def vague_names(tree):
    """No manager, helper, util, common, data or info in the name of a file or a type."""
    for path, text in tree.items():
        if not is_cpp(path):
            continue
        stem = posixpath.basename(path).rsplit(".", 1)[0]
        if VAGUE & set(stem.split("_")):
            yield path, 1, "file name says nothing"
        for match in re.finditer(r"\b(?:class|struct|enum class)\s+(\w+)\s*(?:final\s*)?[:{]",
                                 code_only(text)):
            if VAGUE & set(match.group(1).lower().split("_")):
                yield path, line_at(text, match.start()), f"{match.group(1)} says nothing"


def unity_clashes(tree):
    """Sources that are compiled as one (all but cli and tests) do not share a private name."""
    owners = {}
    for path, text in tree.items():
        if path.endswith(".cpp") and not path.startswith(("cli/", "tests/")):
            for key in private_names(text):
                owner = owners.setdefault((posixpath.dirname(path), key), path)
                if owner != path:
                    yield path, 1, f"private name {key[0]} is also in {owner}"


def built_patterns(tree):
    """Globs of every source that some target builds, read from the CMake files."""
    patterns = set()
    for path, text in tree.items():
        if posixpath.basename(path) != "CMakeLists.txt":
            continue
        folder = posixpath.dirname(path)
        for match in re.finditer(r"file\(GLOB\s+\w+\s+(?:CONFIGURE_DEPENDS\s+)?([^)]+)\)", text):
            for pattern in match.group(1).split():
                patterns.add(posixpath.join(folder, pattern))
        for match in re.finditer(r"kvd_test\(([\w/]+)", text):
            patterns.add(posixpath.join(folder, match.group(1), "*.cpp"))
        for match in re.finditer(r"[\w/]+\.(?:cpp|proto)\b", text):
            patterns.add(posixpath.join(folder, match.group()))
    return patterns


def unbuilt_sources(tree):
    """Every .cpp is built by a target; every header is included by somebody else."""
    patterns = built_patterns(tree)
    included = set()
    for path, text in tree.items():
        if is_cpp(path):
            included.update(name for _, _, name in includes(text))
    for path in tree:
        folder = posixpath.dirname(path)
        if path.endswith((".cpp", ".proto")):
            if not any(fnmatch.fnmatchcase(path, p) and posixpath.dirname(p) == folder
                       for p in patterns):
                yield path, 1, "no target builds this"
        elif path.endswith(".hpp") and path not in included:
            yield path, 1, "nobody includes this"


def unnamed_files(tree):
    """Any other file is named, itself or its folder, by a document, a script or the build."""
    for path in tree:
        name = posixpath.basename(path)
        if is_cpp(path) or path.endswith(".proto") or "/" not in path or name == "CMakeLists.txt":
            continue
        names = {path, name} | ({name[:-3]} if name.endswith(".py") else set())
        if name.startswith("Find") and name.endswith(".cmake"):
            names.add(f"find_package({name[4:-6]}")
        folder = posixpath.dirname(path)
        while "/" in folder:
            names.add(folder)
            names.add(posixpath.relpath(folder, "tests") if folder.startswith("tests/") else folder)
            folder = posixpath.dirname(folder)
        pattern = re.compile(r"(?<![\w/.-])(?:[\w./${}-]*/)?(?:"
                             + "|".join(re.escape(n) for n in sorted(names)) + r")(?![\w-])")
        if not any(pattern.search(text) for other, text in tree.items()
                   if other != path and is_text(other)):
            yield path, 1, "no document, script or build file names this"


def missing_files(tree):
    """What documents and comments name as a file of the tree exists."""
    paths = set(tree)
    folders = {posixpath.dirname(p) for p in tree}
    folders |= {posixpath.dirname(f) for f in list(folders)}

    def exists(name):
        name = name.rstrip("/")
        return name in paths or name in folders or any(fnmatch.fnmatchcase(p, name) for p in paths)

    named = re.compile(r"(?<![\w/.<-])((?:" + "|".join(TOP) + r")/[\w./*-]*\.(?:cpp|hpp|md|py|proto"
                       r"|json|jsonl|toml|conf|yaml|sh|txt))(?![\w/<*-])")
    for path, text in tree.items():
        if is_tidy(path) or not (is_cpp(path) or path.endswith((".md", ".py", ".txt", ".sh"))):
            continue
        if not is_text(path) or path.endswith("CMakeLists.txt"):  # CMake checks its own
            continue
        for number, line in lines_of(text):
            for match in named.finditer(line):
                if not exists(match.group(1)) and match.group(1) not in line.split("#include"):
                    yield path, number, f"no such file: {match.group(1)}"
            if not path.endswith(".md"):
                continue
            for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", line):
                there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
                if not exists(there):
                    yield path, number, f"link to nothing: {target}"
            for name in re.findall(r"`((?:" + "|".join(TOP) + r")/[\w./*-]*)`", line):
                if not exists(name):
                    yield path, number, f"no such file or folder: {name}"
            for name in re.findall(r"`([A-Z]\w+(?:\.md|\.txt|\.json)|Makefile|LICENSE)`", line):
                if name not in paths:
                    yield path, number, f"no such file: {name}"


def white_space(tree):
    """No trailing white space, no tab outside the Makefile, no CR, one newline at the end."""
    for path, text in tree.items():
        if not is_text(path):
            continue
        for number, line in lines_of(text):
            if line != line.rstrip():
                yield path, number, "trailing white space"
            if "\t" in line and path != "Makefile":
                yield path, number, "tab"
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            yield path, line_at(text, len(text)), "the file does not end with one newline"


def foreign_bytes(tree):
    """No binaries, nothing generated, nothing over 1 MiB."""
    for path, text in tree.items():
        name = posixpath.basename(path)
        if re.search(r"\.(o|a|so|pyc|pb\.h|pb\.cc|log|tmp|orig|rej|gcda)$|^core\.\d+$", name):
            yield path, 1, "generated file"
        if path.startswith(("build/", "build-")):
            yield path, 1, "build output"
        if "\0" in text and not path.startswith("tests/fuzz/corpus/"):
            yield path, 1, "binary file"
        if len(text) > FILE_BYTES_MAX:
            yield path, 1, f"{len(text)} bytes, at most {FILE_BYTES_MAX}"


def machine_traces(tree):
    """No path of one machine, no package registry: they mean nothing to anybody else."""
    pattern = re.compile(r"(?<![\w.$}])/(?:work|home|root|Users)/\w|\bindex-url\b|\btrusted-host\b"
                         r"|\bpypi\.org|pythonhosted\.org|\bartifactory\b|\bnpmjs\.(?:com|org)")
    for path, text in tree.items():
        if is_text(path) and not is_tidy(path):
            for number, line in lines_of(text):
                match = pattern.search(line)
                if match:
                    yield path, number, f"{match.group()}: belongs to one machine"


RULES = (
    long_lines, long_functions, long_files, library_homes, dependency_direction, unknown_includes,
    banned_calls, one_handler_requests, leftovers, header_shape, vague_names, unity_clashes,
    unbuilt_sources, unnamed_files, missing_files, white_space, foreign_bytes, machine_traces,
)
