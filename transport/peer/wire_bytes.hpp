#pragma once
// Little-endian numbers and counted strings, written to and read from bytes that nobody vouches
// for. A reader that ran out stays out and gives zeros: ask ok() once, at the end.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvd {

class wire_writer {
public:
  explicit wire_writer(std::string& out) : out_(out) {}
  template<class Number>
  void number(Number value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      out_.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff));
  }
  void bytes(std::string_view text) { out_.append(text); }
  // REQUIRES: the size fits `Count`.
  template<class Count>
  void counted(std::string_view text) {
    number(static_cast<Count>(text.size()));
    bytes(text);
  }

private:
  std::string& out_;
};

class wire_reader {
public:
  explicit wire_reader(std::string_view in) : in_(in) {}
  bool ok() const noexcept { return ok_; }
  std::size_t left() const noexcept { return in_.size(); }
  template<class Number>
  Number number() noexcept {
    const auto text = bytes(sizeof(Number));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < text.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
    return static_cast<Number>(value);
  }
  // Of the input; empty when it is too short.
  std::string_view bytes(std::size_t count) noexcept {
    if (!ok_ || count > in_.size()) {
      ok_ = false;
      return {};
    }
    const auto taken = in_.substr(0, count);
    in_.remove_prefix(count);
    return taken;
  }
  template<class Count>
  std::string_view counted() noexcept {
    return bytes(number<Count>());
  }

private:
  std::string_view in_;
  bool ok_ = true;
};

}  // namespace kvd
