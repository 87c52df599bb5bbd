#include "transport/device/printable.hpp"

#include <cstddef>

#include <fmt/format.h>

namespace kvd {

std::string printable(std::string_view bytes) {
  constexpr std::size_t shown_max = 64;
  std::string text = "'";
  for (const char c : bytes.substr(0, shown_max)) {
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  text += '\'';
  if (bytes.size() > shown_max) text += fmt::format(" and {} more bytes", bytes.size() - shown_max);
  return text;
}

}  // namespace kvd
