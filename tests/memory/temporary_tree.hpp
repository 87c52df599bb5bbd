#pragma once
// A folder of files that stands for /proc or /sys in a test, and is gone after it.

#include <filesystem>
#include <fstream>
#include <string>

#include <stdlib.h>

#include <doctest/doctest.h>

namespace kvd {

class temporary_tree {
public:
  temporary_tree() {
    std::string pattern = std::filesystem::temp_directory_path() / "kvd-tree-XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  ~temporary_tree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  temporary_tree(const temporary_tree&) = delete;
  temporary_tree& operator=(const temporary_tree&) = delete;

  void write(const std::string& path, const std::string& text) const {
    const auto file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string path(const std::string& below) const { return root_ / below; }

private:
  std::filesystem::path root_;
};

}  // namespace kvd
