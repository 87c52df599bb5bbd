#include "transport/device/pickle_reader.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/limits.hpp"
#include "transport/device/pickle_opcodes.hpp"
#include "transport/device/printable.hpp"

namespace kvd {

namespace {

// PegaFlow's wrapper makes about 40 values and 30 memo entries; a tensor has a handful of
// dimensions more at most.
constexpr std::size_t values_max = 1024;
constexpr std::size_t memo_max = 1024;
constexpr std::size_t marks_max = 16;

using op = pickle_op;

// UTF-8 whose characters are all below U+0100, as the bytes that latin1 makes of them.
std::optional<std::string> latin1(std::string_view utf8) {
  std::string bytes;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x80) {
      bytes += static_cast<char>(c);
      continue;
    }
    if ((c != 0xC2 && c != 0xC3) || i + 1 == utf8.size()) return std::nullopt;
    const auto low = static_cast<unsigned char>(utf8[++i]);
    if ((low & 0xC0) != 0x80) return std::nullopt;
    bytes += static_cast<char>(((c & 0x03) << 6) | (low & 0x3F));
  }
  return bytes;
}

// One run over one pickle. A step returns nullopt when all is well.
class machine {
public:
  using kind = pickle_value::kind;
  using failure = std::optional<error>;

  explicit machine(std::span<const std::byte> bytes) : bytes_(bytes) {
    tree_.values.emplace_back();
  }

  result<pickle_tree> run() {
    if (auto wrong = start()) return tl::unexpected<error>(std::move(*wrong));
    for (;;) {
      op_at_ = at_;
      if (frame_end_ == at_) frame_end_ = bytes_.size();
      std::uint64_t code = 0;
      if (auto wrong = number(1, code)) return tl::unexpected<error>(std::move(*wrong));
      if (static_cast<op>(code) == op::stop) break;
      if (auto wrong = step(static_cast<op>(code))) return tl::unexpected<error>(std::move(*wrong));
    }
    if (at_ != bytes_.size()) {
      return tl::unexpected<error>(
          wrong(fmt::format("{} bytes follow the end of the pickle", bytes_.size() - at_)));
    }
    if (stack_.size() != 1 || !marks_.empty()) {
      return tl::unexpected<error>(
          wrong(fmt::format("{} values are left at the end, expected 1", stack_.size())));
    }
    tree_.root = stack_.back();
    return std::move(tree_);
  }

private:
  error wrong(std::string_view what) const {
    return {errc::invalid_argument, fmt::format("pickle: {} (at byte {})", what, op_at_)};
  }

  // --- input

  failure take(std::uint64_t count, std::string_view& out) {
    if (count > frame_end_ - at_) {
      return wrong(fmt::format("{} bytes are missing from byte {} on", count - (frame_end_ - at_),
                               frame_end_));
    }
    out = std::string_view(reinterpret_cast<const char*>(bytes_.data()) + at_,
                           static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return std::nullopt;
  }

  failure number(unsigned width, std::uint64_t& out) {
    std::string_view text;
    if (auto wrong = take(width, text)) return wrong;
    out = 0;
    for (unsigned i = 0; i < width; ++i) {
      out |= std::uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
    }
    return std::nullopt;
  }

  failure line(std::string_view& out) {
    const auto rest =
        std::string_view(reinterpret_cast<const char*>(bytes_.data()), frame_end_).substr(at_);
    const auto end = rest.find('\n');
    if (end == std::string_view::npos) return wrong("a line without an end");
    out = rest.substr(0, end);
    at_ += end + 1;
    return std::nullopt;
  }

  failure start() {
    std::uint64_t code = 0;
    std::uint64_t protocol = 0;
    frame_end_ = bytes_.size();
    if (auto wrong = number(1, code)) return wrong;
    if (static_cast<op>(code) != op::proto) return wrong("it does not begin with a protocol");
    if (auto wrong = number(1, protocol)) return wrong;
    if (protocol < 2 || protocol > 5) {
      return wrong(fmt::format("protocol {}, 2 to 5 are understood", protocol));
    }
    return std::nullopt;
  }

  failure open_frame() {
    std::uint64_t size = 0;
    if (frame_end_ != bytes_.size()) return wrong("a frame inside a frame");
    if (auto wrong = number(8, size)) return wrong;
    if (size > bytes_.size() - at_) {
      return wrong(fmt::format("a frame of {} bytes, {} are left", size, bytes_.size() - at_));
    }
    frame_end_ = at_ + static_cast<std::size_t>(size);
    return std::nullopt;
  }

  // --- stack, marks and memo

  failure push(pickle_value value) {
    if (tree_.values.size() > values_max) {
      return wrong(fmt::format("more than {} values", values_max));
    }
    stack_.push_back(static_cast<std::uint32_t>(tree_.values.size()));
    tree_.values.push_back(std::move(value));
    return std::nullopt;
  }
  failure push(kind type, std::int64_t value) {
    pickle_value item;
    item.type = type;
    item.number = value;
    return push(std::move(item));
  }
  failure push(kind type, std::string_view text) {
    pickle_value item;
    item.type = type;
    item.text = text;
    return push(std::move(item));
  }

  // Values above the last mark.
  std::size_t loose() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  failure need(std::size_t count) const {
    if (loose() < count) {
      return wrong(fmt::format("{} values are needed, {} are there", count, loose()));
    }
    return std::nullopt;
  }

  std::uint32_t pop() {
    const auto top = stack_.back();
    stack_.pop_back();
    return top;
  }
  pickle_value& value(std::uint32_t index) { return tree_.values[index]; }

  failure push_mark() {
    if (marks_.size() == marks_max) return wrong(fmt::format("more than {} marks", marks_max));
    marks_.push_back(stack_.size());
    return std::nullopt;
  }

  failure pop_mark(std::vector<std::uint32_t>& items) {
    if (marks_.empty()) return wrong("no mark to go back to");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    items.assign(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return std::nullopt;
  }

  failure remember(std::uint64_t index) {
    if (auto wrong = need(1)) return wrong;
    if (index >= memo_max) return wrong(fmt::format("memo entry {}, at most {}", index, memo_max));
    if (index >= memo_.size()) memo_.resize(index + 1, 0);
    memo_[index] = stack_.back();
    ++memo_count_;
    return std::nullopt;
  }

  failure recall(std::uint64_t index) {
    if (index >= memo_.size() || memo_[index] == 0) {
      return wrong(fmt::format("memo entry {} was never written", index));
    }
    if (stack_.size() >= values_max) return wrong(fmt::format("more than {} values", values_max));
    stack_.push_back(memo_[index]);
    return std::nullopt;
  }

  failure remember_at(unsigned width) {
    std::uint64_t index = 0;
    if (auto wrong = number(width, index)) return wrong;
    return remember(index);
  }

  failure recall_at(unsigned width) {
    std::uint64_t index = 0;
    if (auto wrong = number(width, index)) return wrong;
    return recall(index);
  }

  // --- values

  failure counted(unsigned width, kind type) {
    std::uint64_t size = 0;
    std::string_view text;
    if (auto wrong = number(width, size)) return wrong;
    if (auto wrong = take(size, text)) return wrong;
    return push(type, text);
  }

  failure integer(unsigned width) {
    std::uint64_t bits = 0;
    if (auto wrong = number(width, bits)) return wrong;
    // Only BININT, the four-byte one, has a sign.
    if (width == 4) return push(kind::integer, std::int64_t{static_cast<std::int32_t>(bits)});
    return push(kind::integer, static_cast<std::int64_t>(bits));
  }

  failure long_integer() {
    std::uint64_t width = 0;
    std::uint64_t bits = 0;
    if (auto wrong = number(1, width)) return wrong;
    if (width > 8) return wrong(fmt::format("an integer of {} bytes, at most 8", width));
    if (auto wrong = number(static_cast<unsigned>(width), bits)) return wrong;
    const auto unused = 64 - 8 * static_cast<unsigned>(width);
    // Two's complement of `width` bytes, extended by its sign; no bytes at all are zero.
    const auto extended = width == 0 ? 0 : static_cast<std::int64_t>(bits << unused) >> unused;
    return push(kind::integer, extended);
  }

  failure push_global(std::string_view module, std::string_view attribute) {
    const auto full = fmt::format("{}.{}", module, attribute);
    if (std::find(pickle_globals::all.begin(), pickle_globals::all.end(), full) ==
        pickle_globals::all.end()) {
      return wrong(fmt::format("global {} is not allowed", printable(full)));
    }
    return push(kind::global, full);
  }

  failure global_lines() {
    std::string_view module;
    std::string_view attribute;
    if (auto wrong = line(module)) return wrong;
    if (auto wrong = line(attribute)) return wrong;
    return push_global(module, attribute);
  }

  failure global_from_stack() {
    if (auto wrong = need(2)) return wrong;
    const auto attribute = pop();
    const auto module = pop();
    if (value(module).type != kind::text || value(attribute).type != kind::text) {
      return wrong("a global whose name is not text");
    }
    return push_global(value(module).text, value(attribute).text);
  }

  failure make_tuple(std::size_t count) {
    if (auto wrong = need(count)) return wrong;
    pickle_value item;
    item.type = kind::tuple;
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    item.items.assign(first, stack_.end());
    stack_.erase(first, stack_.end());
    return push(std::move(item));
  }

  failure marked_tuple() {
    pickle_value item;
    item.type = kind::tuple;
    if (auto wrong = pop_mark(item.items)) return wrong;
    return push(std::move(item));
  }

  failure set_items(std::vector<std::uint32_t> items) {
    if (auto wrong = need(1)) return wrong;
    auto& dict = value(stack_.back());
    if (dict.type != kind::dict) {
      return wrong(fmt::format("items are set on a {}, expected a dict", name(dict.type)));
    }
    if (items.size() % 2 != 0) return wrong("a dict key without a value");
    if (dict.items.size() + items.size() > values_max) {
      return wrong(fmt::format("more than {} values", values_max));
    }
    dict.items.insert(dict.items.end(), items.begin(), items.end());
    return std::nullopt;
  }

  failure set_marked_items() {
    std::vector<std::uint32_t> items;
    if (auto wrong = pop_mark(items)) return wrong;
    return set_items(std::move(items));
  }

  failure set_one_item() {
    if (auto wrong = need(3)) return wrong;
    const auto item = pop();
    const auto key = pop();
    return set_items({key, item});
  }

  // --- objects

  failure new_object() {
    if (auto wrong = need(2)) return wrong;
    const auto arguments = pop();
    const auto type = pop();
    if (value(type).type != kind::global || value(type).text != pickle_globals::wrapper_class) {
      return wrong(fmt::format("an object of {} is not allowed", printable(value(type).text)));
    }
    if (value(arguments).type != kind::tuple || !value(arguments).items.empty()) {
      return wrong(fmt::format("{} takes no arguments", pickle_globals::wrapper_class));
    }
    return push(kind::object, std::int64_t{type});
  }

  failure build() {
    if (auto wrong = need(2)) return wrong;
    const auto state = pop();
    auto& object = value(stack_.back());
    if (object.type != kind::object || value(state).type != kind::dict) {
      return wrong(fmt::format("a {} gets a {} as its state, expected an object and a dict",
                               name(object.type), name(value(state).type)));
    }
    if (object.state != 0) return wrong("an object gets its state twice");
    object.state = state;
    return std::nullopt;
  }

  failure reduce() {
    if (auto wrong = need(2)) return wrong;
    const auto arguments = value(pop());  // a copy: push() below may move the values
    const auto function = value(pop());
    if (function.type != kind::global || arguments.type != kind::tuple) {
      return wrong(fmt::format("a {} is called with a {}, expected a global and a tuple",
                               name(function.type), name(arguments.type)));
    }
    const auto& items = arguments.items;
    if (function.text == pickle_globals::size_class) {
      if (items.size() == 1 && value(items[0]).type == kind::tuple) {
        stack_.push_back(items[0]);
        return std::nullopt;
      }
    } else if (function.text == pickle_globals::encode_function) {
      if (items.size() == 2 && value(items[0]).type == kind::text &&
          value(items[1]).type == kind::text && value(items[1]).text == "latin1") {
        return encode(value(items[0]).text);
      }
    } else if (function.text.ends_with(".bytes") && items.empty()) {
      return push(kind::bytes, std::string_view());
    }
    return wrong(
        fmt::format("global {} is called in a way that is not allowed", printable(function.text)));
  }

  failure encode(std::string_view text) {
    // The same text may be encoded again and again through the memo.
    encoded_bytes_ += text.size();
    if (encoded_bytes_ > limits::wrapper_bytes_max) {
      return wrong(fmt::format("more than {} encoded bytes", limits::wrapper_bytes_max));
    }
    const auto bytes = latin1(text);
    if (!bytes) return wrong("text that latin1 cannot encode");
    return push(kind::bytes, std::string_view(*bytes));
  }

  failure step(op code) {
    switch (code) {
    case op::frame: return open_frame();
    case op::mark: return push_mark();
    case op::global: return global_lines();
    case op::stack_global: return global_from_stack();
    case op::empty_tuple: return make_tuple(0);
    case op::tuple1: return make_tuple(1);
    case op::tuple2: return make_tuple(2);
    case op::tuple3: return make_tuple(3);
    case op::tuple: return marked_tuple();
    case op::setitem: return set_one_item();
    case op::setitems: return set_marked_items();
    case op::newobj: return new_object();
    case op::build: return build();
    case op::reduce: return reduce();
    case op::memoize: return remember(memo_count_);
    case op::binput: return remember_at(1);
    case op::long_binput: return remember_at(4);
    case op::binget: return recall_at(1);
    case op::long_binget: return recall_at(4);
    default: return literal(code);
    }
  }

  failure literal(op code) {
    switch (code) {
    case op::none: return push(kind::none, 0);
    case op::newtrue: return push(kind::boolean, 1);
    case op::newfalse: return push(kind::boolean, 0);
    case op::empty_dict: return push(kind::dict, 0);
    case op::binint1: return integer(1);
    case op::binint2: return integer(2);
    case op::binint: return integer(4);
    case op::long1: return long_integer();
    case op::short_binunicode: return counted(1, kind::text);
    case op::binunicode: return counted(4, kind::text);
    case op::binunicode8: return counted(8, kind::text);
    case op::short_binbytes: return counted(1, kind::bytes);
    case op::binbytes: return counted(4, kind::bytes);
    case op::binbytes8: return counted(8, kind::bytes);
    default: break;
    }
    return wrong(fmt::format("opcode {:#04x} is not allowed", static_cast<unsigned>(code)));
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;      // where the opcode at work began, for errors
  std::size_t frame_end_ = 0;  // no operand crosses it
  pickle_tree tree_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::uint32_t> memo_;
  std::size_t memo_count_ = 0;
  std::size_t encoded_bytes_ = 0;
};

}  // namespace

std::string_view name(pickle_value::kind kind) noexcept {
  switch (kind) {
  case pickle_value::kind::none: return "None";
  case pickle_value::kind::boolean: return "bool";
  case pickle_value::kind::integer: return "int";
  case pickle_value::kind::text: return "str";
  case pickle_value::kind::bytes: return "bytes";
  case pickle_value::kind::tuple: return "tuple";
  case pickle_value::kind::dict: return "dict";
  case pickle_value::kind::global: return "global";
  case pickle_value::kind::object: return "object";
  }
  return "unknown";
}

result<pickle_tree> read_pickle(std::span<const std::byte> bytes) {
  if (bytes.size() > limits::wrapper_bytes_max) {
    return fail(errc::invalid_argument, fmt::format("pickle: {} bytes, at most {} are read",
                                                    bytes.size(), limits::wrapper_bytes_max));
  }
  return machine(bytes).run();
}

}  // namespace kvd
