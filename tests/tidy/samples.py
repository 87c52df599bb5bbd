"""What each rule must catch, and a tree at which every rule must be silent."""

GOOD = {
    "CMakeLists.txt": "add_subdirectory(core)\n",
    "core/CMakeLists.txt": "file(GLOB sources CONFIGURE_DEPENDS *.cpp)\n",
    "core/thing.hpp": "#pragma once\n// Things, and what they are for.\n\nint thing(int a);\n",
    "core/thing.cpp": '#include "core/thing.hpp"\n\n// See docs/thing.md.\n'
                      "namespace kvd {\nint thing(int a) { return a; }\n}  // namespace kvd\n",
    "core/a.cpp": "namespace {\nusing x = int;\nint f(int a) { return a; }\n}\n",
    "core/b.cpp": "namespace {\nusing x = int;\nint f(char a) { return a; }\n}\n",
    "docs/thing.md": "Read `core/thing.hpp` and [the source](../core/thing.cpp).\n",
    "actors/CMakeLists.txt": "file(GLOB sources *.cpp)\n",
    "actors/shell.cpp": '#include <caf/typed_actor.hpp>\n#include "core/thing.hpp"\n'
                        "void f(self s) { s.request(a, 5s, b).then([](int x) { g(x, 1); }, e); }\n",
    "tests/CMakeLists.txt": "kvd_test(core LINK kvd_core)\n",
    "tests/core/thing_test.cpp": '#include <doctest/doctest.h>\n#include "core/thing.hpp"\n'
                                 'TEST_CASE("sleep_for( in a string is no call") {}\n',
    "Makefile": "all:\n\ttrue\n",
}


def _function(lines):
    return "int f() {\n" + "  g();\n" * (lines - 2) + "}\n"


# rule name -> changes to GOOD, each of which the rule must find something in.
BAD = {
    "long_lines": [
        {"core/thing.cpp": "// " + "x" * 98 + "\n"},
        {"tests/tidy/thing.py": "x = '" + "x" * 98 + "'\n"},
    ],
    "long_functions": [
        {"core/thing.cpp": _function(71)},
        {"core/thing.cpp": "namespace kvd {\nclass a : b {\npublic:\n" + _function(71) + "};\n}\n"},
        {"core/thing.cpp": "a::a(int x) : b_(x), c_{x} {\n" + "  g();\n" * 70 + "}\n"},
        {"core/thing.cpp": "template<class T>\nauto f(T x) -> int {\n  if (x) {\n"
                           + "  g();\n" * 70 + "  }\n}\n"},
        {"core/thing.cpp": 'TEST_CASE("a { in a string") {\n' + "  g();\n" * 70 + "}\n"},
    ],
    "long_files": [{"core/thing.cpp": "// x\n" * 501}],
    "library_homes": [
        {"core/thing.cpp": "#include <caf/actor.hpp>\n"},
        {"transport/http/route.cpp": "#include <boost/beast/http.hpp>\n"},
        {"transport/device/copy.cpp": "#include <numa.h>\n"},
        {"actors/shell.cpp": "#include <caf/all.hpp>\n"},
        {"memory/pool.cpp": "#include <grpcpp/grpcpp.h>\n"},
    ],
    "dependency_direction": [
        {"core/thing.cpp": '#include "memory/pool.hpp"\n'},
        {"memory/pool.cpp": '#include "transport/device/copy_job.hpp"\n'},
        {"transport/device/copy.cpp": '#include "transport/grpc/service.hpp"\n'},
        {"transport/http/server.cpp": '#include "memory/pool.hpp"\n'},
        {"actors/shell.cpp": '#include "cli/command.hpp"\n'},
        {"elsewhere/thing.cpp": "int x;\n"},
    ],
    "unknown_includes": [
        {"core/thing.cpp": '#include "thing.hpp"\n'},
        {"core/thing.cpp": '#include "core/nothing.hpp"\n'},
    ],
    "banned_calls": [
        {"core/thing.cpp": "void f() { std::this_thread::sleep_for(1s); }\n"},
        {"tests/core/thing_test.cpp": "void f() { ::usleep(1); }\n"},
        {"tests/core/thing_test.cpp": "void f() { sleep(1); }\n"},
        {"core/thing.cpp": "int f() { return rand(); }\n"},
        {"core/thing.cpp": "std::random_device seed;\n"},
        {"memory/pool.cpp": "auto f() { return std::chrono::steady_clock::now(); }\n"},
        {"memory/pool.cpp": "auto f() { return std::chrono::system_clock::now(); }\n"},
        {"memory/pool.cpp": "auto f() { return std::time(nullptr); }\n"},
        {"actors/shell.cpp": "auto t = caf::infinite;\n"},
        {"core/thing.cpp": "void f(std::thread& t) { t.detach(); }\n"},
        {"core/thing.cpp": "using namespace std;\n"},
        {"core/thing.cpp": "#define TWICE(x) ((x) * 2)\n"},
    ],
    "one_handler_requests": [
        {"actors/shell.cpp": "void f() { s.request(a, 5s, b).then([](int x) { g(x, 1); }); }\n"},
        {"cli/run.cpp": "void f() { s.request(a, 5s, b)\n  .await(\n  ok); }\n"},
    ],
    "leftovers": [
        {"core/thing.cpp": "// TODO: later\n"},
        {"docs/thing.md": "FIXME\n"},
    ],
    "header_shape": [
        {"core/thing.hpp": "// Things, and what they are for.\n#pragma once\n"},
        {"core/thing.hpp": "#pragma once\n\nint thing(int a);\n"},
        {"core/thing.hpp": "#pragma once\n// Things, and what they are for.\nusing namespace a;\n"},
    ],
    "vague_names": [
        {"core/thing_util.cpp": "int x;\n"},
        {"core/thing.cpp": "class lease_manager {};\n"},
        {"core/thing.cpp": "struct block_info final : base {};\n"},
    ],
    "unity_clashes": [
        {"core/a.cpp": "namespace {\nint same(int x) { return x; }\n}\n",
         "core/b.cpp": "namespace {\n\nint same(int y) {\n  return y + 1;\n}\n}\n"},
        {"core/a.cpp": "namespace {\nconstexpr int limit = 1;\n}\n",
         "core/b.cpp": "namespace {\nstruct limit {\n  int x;\n};\n}\n"},
    ],
    "unbuilt_sources": [
        {"docs/thing.cpp": "int x;\n"},
        {"core/deeper/thing.cpp": "int x;\n"},
        {"tests/memory/pool_test.cpp": "int x;\n"},
        {"core/lonely.hpp": "#pragma once\n// Things, and what they are for.\n"},
    ],
    "unnamed_files": [
        {"scripts/forgotten": "#!/bin/sh\n"},
        {"docs/lost.md": "Nobody links here.\n"},
        {"tests/wire/other/run.py": "x = 1\n"},
    ],
    "missing_files": [
        {"docs/thing.md": "Read `core/gone.hpp`.\n"},
        {"docs/thing.md": "Read [the source](../core/gone.cpp).\n"},
        {"docs/thing.md": "Start in `core/gone/`.\n"},
        {"docs/thing.md": "Read `CONTRIBUTING.md`.\n"},
        {"core/thing.cpp": "// As docs/gone.md says.\n"},
    ],
    "white_space": [
        {"core/thing.cpp": "int x; \n"},
        {"core/thing.cpp": "\tint x;\n"},
        {"core/thing.cpp": "int x;\r\n"},
        {"core/thing.cpp": "int x;"},
        {"core/thing.cpp": "int x;\n\n"},
    ],
    "foreign_bytes": [
        {"core/thing.o": "x\n"},
        {"docs/picture": "a\0b\n"},
        {"build/thing": "x\n"},
        {"tests/data/trace.jsonl": "x\n" * (1 << 20)},
    ],
    "machine_traces": [
        {"core/thing.cpp": "// measured in /home/someone\n"},
        {"scripts/forgotten": "pip install --index-url=http://somewhere x\n"},
    ],
}
