"""Just enough C++ to check sources by their text: no comments, no strings, where functions are."""

import re

_TOKEN = re.compile(
    r'R"(?P<raw>[^()\s\\]*)\(.*?\)(?P=raw)"'
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def code_only(text):
    """`text` with comments blanked and literals emptied; lines and columns of code stay."""

    def blank(match):
        piece = match.group(0)
        if piece.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", piece)
        inside = re.sub(r"[^\n]", "_", piece[1:-1])
        return piece[0] + inside + piece[-1]

    # An #include's quoted path is code here: keep it.
    kept = []
    for line in _TOKEN.sub(blank, text).split("\n"):
        kept.append(line)
    original = text.split("\n")
    for i, line in enumerate(original):
        if re.match(r'\s*#\s*include\s*"', line) and kept[i].lstrip().startswith("#"):
            kept[i] = line
    return "\n".join(kept)


_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def functions(text):
    """(first line, number of lines) of every function body outside other functions."""
    code = re.sub(r"(?m)^\s*#.*(?:\\\n.*)*$", "", code_only(text))
    found = []
    scopes = []  # for each open brace: did it open a function, and where that began
    head_start = 0
    for at, char in enumerate(code):
        if char == ";" and not any(s for s, _ in scopes):
            head_start = at + 1
        elif char == "}" and scopes:
            inside, start = scopes.pop()
            if any(s for s, _ in scopes):
                continue
            if inside and code[at + 1:].lstrip()[:1] in (",", "{"):  # a member's initialiser
                head_start = start
                continue
            if inside:
                first = code.count("\n", 0, start) + 1
                last = code.count("\n", 0, at) + 1
                found.append((first, last - first + 1))
            head_start = at + 1
        elif char == "{":
            head = code[head_start:at]
            begin = head_start + len(head) - len(head.lstrip())
            plain = re.sub(r"template\s*<[^{}()]*>|\brequires\b[^{}()]*", "", head)
            scope = _SCOPE.search(plain.split("(")[0]) and not re.search(r"\)\s*[^)]*$", plain)
            is_function = "(" in head and not scope
            scopes.append((bool(is_function), begin))
            if not any(s for s, _ in scopes):
                head_start = at + 1
    return found


def arguments(code, open_paren):
    """Number of arguments of the call whose '(' is at `open_paren`; None if it never ends."""
    depth = 0
    count = 0
    empty = True
    for at in range(open_paren, len(code)):
        char = code[at]
        if char in "([{":
            depth += 1
            if depth > 1:
                empty = False
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return 0 if empty else count + 1
        elif depth == 1 and char == ",":
            count += 1
        elif not char.isspace():
            empty = False
    return None
