#include "cli/settings.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "cli/config_file.hpp"
#include "core/limits.hpp"

namespace kvd {
namespace {

const option options[] = {
    {.name = "size", .value = "SIZE"},
    {.name = "fast", .kind = option_kind::flag},
    {.name = "cards", .kind = option_kind::list, .value = "NAME"},
    {.name = "config", .value = "FILE", .in_file = false},
};

using words = std::vector<std::string>;

std::vector<setting> from_file(const std::string& text, findings& found) {
  return settings_from_file(options, "server", "f.toml", text, found);
}

TEST_CASE("values may stand beside a flag, behind an equals sign, or be several") {
  findings found;
  const words line{"--size", "5", "--fast", "--cards", "a", "b", "--cards=c,d", "--size=-7"};
  const auto settings = settings_from_arguments(options, line, found);
  CHECK(found.errors.empty());
  REQUIRE(settings.size() == 5);
  CHECK(settings[0].values == words{"5"});
  CHECK(settings[1].values.empty());
  CHECK(settings[2].values == words{"a", "b"});
  CHECK(settings[3].values == words{"c,d"});
  CHECK(settings[4].values == words{"-7"});
  CHECK(settings[4].source == "--size");
}

TEST_CASE("a value may begin with a dash, so that a negative size gets its own message") {
  findings found;
  const words line{"--size", "-5gb"};
  const auto settings = settings_from_arguments(options, line, found);
  CHECK(found.errors.empty());
  REQUIRE(settings.size() == 1);
  CHECK(settings[0].values == words{"-5gb"});
}

TEST_CASE("an abbreviated flag is not guessed") {
  findings found;
  const words line{"--siz", "5"};
  CHECK(settings_from_arguments(options, line, found).empty());
  CHECK(found.errors == words{"'--siz': unknown flag; did you mean --size?"});
}

TEST_CASE("odd command lines are errors, not exceptions") {
  for (const words& line : {words{"--"}, words{"--="}, words{"--=x"}, words{"-"}, words{""},
                            words{"-x"}, words{"--size", "1", "2"}, words{"---size"},
                            words{"--no-"}, words{"--no-size"}, words{std::string("--\0", 3)}}) {
    CAPTURE(line);
    findings found;
    const auto settings = settings_from_arguments(options, line, found);
    CHECK((settings.empty() || !found.errors.empty()));
  }
}

TEST_CASE("an empty variable counts as not set") {
  findings found;
  const std::vector<environment_variable> env{{"KVD_SIZE", ""}, {"KVD_TYPO", ""}};
  CHECK(settings_from_environment(options, env, found).empty());
  CHECK(found.errors.empty());
}

TEST_CASE("variables of tests, builds and Kubernetes services are no mistakes") {
  findings found;
  const std::vector<environment_variable> env{
      {"KVD_TEST_SEED", "1"},       {"KVD_TRACE_DIR", "x"},
      {"KVD_SANITIZE", "address"},  {"KVD_SERVICE_HOST", "10.0.0.1"},
      {"KVD_SERVICE_PORT", "1"},    {"KVD_SERVER_SERVICE_PORT_GRPC", "1"},
      {"KVD_PORT", "tcp://1:1"},    {"KVD_PORT_50055_TCP_ADDR", "1"},
      {"KVD_PORT_50055_TCP", "x"},  {"KVDX", "1"},
      {"KVD_ENGINE_ENDPOINT", "x"}, {"PATH", "/bin"},
      {"KVD_CONFIG", "here.toml"},
  };
  const auto settings = settings_from_environment(options, env, found);
  CHECK(found.errors.empty());
  REQUIRE(settings.size() == 1);
  CHECK(settings[0].name == "config");
}

TEST_CASE("a file holds strings, numbers, switches and lists under the role's section") {
  findings found;
  const auto settings = from_file("# comment\n[server]\nsize = 4096\nfast = false\n"
                                  "cards = [\"a\", 'b', 3]\n",
                                  found);
  CHECK(found.errors.empty());
  REQUIRE(settings.size() == 3);
  for (const auto& s : settings) {
    if (s.name == "size") CHECK(s.values == words{"4096"});
    if (s.name == "size") CHECK(s.source == "f.toml:3 size");
    if (s.name == "fast") CHECK(s.values == words{"false"});
    if (s.name == "cards") CHECK(s.values == words{"a", "b", "3"});
  }
}

TEST_CASE("a file's mistakes are named by line, in order") {
  findings found;
  from_file("size = 1\n[server]\nsise = 1\nfast = [true]\nconfig = 'x'\nsize = 1979-05-27\n"
            "[server.deep]\na = 1\n[serverr]\n",
            found);
  CHECK(found.errors ==
        words{"f.toml:1: key 'size': stands outside a section; put it under [server]",
              "f.toml:3: key 'sise': no option has this name; did you mean size?",
              "f.toml:4 fast: is a array, which this option does not take",
              "f.toml:5: key 'config': cannot stand in a file",
              "f.toml:6 size: is a local_date, which this option does not take",
              "f.toml:7: key 'deep': no option has this name",
              "f.toml:9: section 'serverr': no role has this name; did you mean [server]?; "
              "known sections: [server], [metaserver]"});
}

TEST_CASE("what is no TOML is one error with its line") {
  for (const std::string text :
       {"[server]\nsize = \n", "[server]\nsize 5\n", "[server\n", "[server]\nsize = 1\nsize = 2\n",
        "[server]\nsize = 'x\n", "\xff\xfe"}) {
    CAPTURE(text);
    findings found;
    from_file(text, found);
    REQUIRE(found.errors.size() == 1);
    CAPTURE(found.errors[0]);
    CHECK(found.errors[0].find("f.toml") == 0);
    CHECK(found.errors[0].find('\n') == std::string::npos);
  }
}

TEST_CASE("a file that nests without end is refused before it is parsed") {
  for (const auto& text : {"[server]\nsize = " + std::string(50'000, '['),
                           "[server]\n" + std::string(2, 'a') +
                               [] {
                                 std::string dots;
                                 for (int i = 0; i < 20'000; ++i)
                                   dots += ".a";
                                 return dots;
                               }() +
                               " = 1\n",
                           std::string(limits::config_file_bytes_max + 1, '#')}) {
    findings found;
    CHECK(from_file(text, found).empty());
    CHECK(found.errors.size() == 1);
  }
}

// A directory of its own that goes away with the test.
class scratch_directory {
public:
  scratch_directory() { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  ~scratch_directory() {
    ::unlink(file().c_str());
    ::rmdir(path_.c_str());
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  std::string file() const { return path_ + "/f"; }
  const std::string& path() const { return path_; }

private:
  std::string path_ = "/tmp/kvd-settings-XXXXXX";
};

TEST_CASE("only regular files of a bounded size are read, and open ones are noticed") {
  const scratch_directory dir;
  std::ofstream(dir.file()) << "hello";
  REQUIRE(::chmod(dir.file().c_str(), 0600) == 0);
  const auto closed = read_text_file(dir.file());
  REQUIRE(closed);
  CHECK(closed->text == "hello");
  CHECK_FALSE(closed->world_readable);
  REQUIRE(::chmod(dir.file().c_str(), 0644) == 0);
  CHECK(read_text_file(dir.file())->world_readable);

  std::ofstream(dir.file()) << std::string(limits::config_file_bytes_max + 1, 'x');
  CHECK(read_text_file(dir.file()).error().code == errc::limit_exceeded);
  CHECK(read_text_file(dir.path()).error().detail.find("not a regular file") != std::string::npos);
  CHECK(read_text_file(dir.file() + "gone").error().detail.find("No such file") !=
        std::string::npos);
}

TEST_CASE("a pipe that nobody writes to is refused instead of waited for") {
  const scratch_directory dir;
  REQUIRE(::mkfifo(dir.file().c_str(), 0600) == 0);
  CHECK(read_text_file(dir.file()).error().detail.find("not a regular file") != std::string::npos);
}

}  // namespace
}  // namespace kvd
