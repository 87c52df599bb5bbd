#include "transport/peer/stream_wire.hpp"

#include <algorithm>

#include "transport/peer/wire_bytes.hpp"

namespace kvd::stream_wire {

namespace {

constexpr std::uint32_t stream_magic = 0x7364'766b;  // "kvds"
constexpr std::uint32_t stream_version = 1;
constexpr std::uint32_t request_kind = 0x6461'6572;  // "read"
constexpr std::uint32_t answer_kind = 0x7372'6e61;   // "anrs"

}  // namespace

void put_greeting(std::string& out, std::string_view key, std::string_view boot_id) {
  wire_writer writer(out);
  writer.number(stream_magic);
  writer.number(stream_version);
  writer.bytes(key);
  writer.bytes(boot_id);
}

status check_greeting(std::string_view in, std::string_view key, std::string_view boot_id) {
  wire_reader reader(in);
  if (reader.number<std::uint32_t>() != stream_magic) return status::malformed;
  if (reader.number<std::uint32_t>() != stream_version) return status::malformed;
  const auto theirs = reader.bytes(peer_key_bytes);
  unsigned differing = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    differing |= static_cast<unsigned char>(theirs[i]) ^ static_cast<unsigned char>(key[i]);
  }
  return differing == 0 && reader.bytes(boot_id_bytes) == boot_id ? status::ok : status::refused;
}

void put_greeting_answer(std::string& out, status how) {
  wire_writer writer(out);
  writer.number(stream_magic);
  writer.number(stream_version);
  writer.number(static_cast<std::uint32_t>(how));
}

std::optional<status> take_greeting_answer(std::string_view in) {
  wire_reader reader(in);
  if (reader.number<std::uint32_t>() != stream_magic) return std::nullopt;
  if (reader.number<std::uint32_t>() != stream_version) return std::nullopt;
  const auto how = reader.number<std::uint32_t>();
  if (!reader.ok() || how > static_cast<std::uint32_t>(status::malformed)) return std::nullopt;
  return static_cast<status>(how);
}

void put_request_head(std::string& out, std::uint64_t id, std::size_t runs) {
  wire_writer writer(out);
  writer.number(request_kind);
  writer.number(static_cast<std::uint32_t>(runs));
  writer.number(id);
}

void put_run(std::string& out, run of) {
  wire_writer writer(out);
  writer.number(of.offset);
  writer.number(of.bytes);
}

decoded take_request(std::string_view in, request& out, std::vector<run>& runs) {
  if (in.size() < request_bytes) return decoded::more;
  wire_reader reader(in);
  const auto kind = reader.number<std::uint32_t>();
  const auto count = reader.number<std::uint32_t>();
  out.id = reader.number<std::uint64_t>();
  if (kind != request_kind || count == 0 || count > runs_max) return decoded::malformed;
  out.frame = request_bytes + count * run_bytes;
  if (in.size() < out.frame) return decoded::more;
  out.bytes = 0;
  runs.resize(count);
  for (auto& run : runs) {
    run.offset = reader.number<std::uint64_t>();
    run.bytes = reader.number<std::uint32_t>();
    if (run.bytes == 0) return decoded::malformed;
    out.bytes += run.bytes;
  }
  return out.bytes > request_payload_max ? decoded::malformed : decoded::whole;
}

std::array<char, answer_bytes> make_answer(const answer& of) {
  std::string text;
  wire_writer writer(text);
  writer.number(answer_kind);
  writer.number(static_cast<std::uint32_t>(of.how));
  writer.number(of.id);
  writer.number(of.bytes);
  std::array<char, answer_bytes> out{};
  std::copy(text.begin(), text.end(), out.begin());
  return out;
}

std::optional<answer> take_answer(std::string_view in) {
  wire_reader reader(in);
  const auto kind = reader.number<std::uint32_t>();
  const auto how = reader.number<std::uint32_t>();
  const auto id = reader.number<std::uint64_t>();
  const auto bytes = reader.number<std::uint64_t>();
  if (!reader.ok() || kind != answer_kind || bytes > request_payload_max) return std::nullopt;
  if (how > static_cast<std::uint32_t>(status::malformed)) return std::nullopt;
  return answer{static_cast<status>(how), id, bytes};
}

}  // namespace kvd::stream_wire
