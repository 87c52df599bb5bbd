#pragma once
// What two ports say over a TCP stream.
//
//   reader -> holder   greeting: magic, version, key of the holder's address, its boot id
//   holder -> reader   greeting answer: magic, status
//   reader -> holder   request: kind, number of runs, id; then the runs: offset u64, bytes u32
//   holder -> reader   answer: status, id, bytes; then the bytes of all runs, one after the other
//
// Answers come in the order of requests. Numbers are little-endian. Whoever gets anything else
// closes the connection. Pure functions over bytes; any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/peer/peer_address.hpp"

namespace kvd::stream_wire {

enum class status : std::uint32_t { ok = 0, refused = 1, malformed = 2 };

inline constexpr std::size_t greeting_bytes = 8 + peer_key_bytes + boot_id_bytes;
inline constexpr std::size_t greeting_answer_bytes = 12;
inline constexpr std::size_t request_bytes = 16;
inline constexpr std::size_t run_bytes = 12;
inline constexpr std::size_t answer_bytes = 24;
inline constexpr std::size_t runs_max = 1024;
inline constexpr std::uint64_t request_payload_max = 64 << 20;
inline constexpr std::size_t request_frame_max = request_bytes + runs_max * run_bytes;

struct run {
  std::uint64_t offset;
  std::uint32_t bytes;
};

struct answer {
  status how;
  std::uint64_t id;
  std::uint64_t bytes;
};

struct request {
  std::uint64_t id;
  std::uint64_t bytes;  // of all runs
  std::size_t frame;    // how much of the input it took
};

void put_greeting(std::string& out, std::string_view key, std::string_view boot_id);
// REQUIRES: in has greeting_bytes. Compares the key in constant time.
status check_greeting(std::string_view in, std::string_view key, std::string_view boot_id);
void put_greeting_answer(std::string& out, status how);
// Nothing: malformed. REQUIRES: in has greeting_answer_bytes.
std::optional<status> take_greeting_answer(std::string_view in);

// REQUIRES: 1 to runs_max runs.
void put_request_head(std::string& out, std::uint64_t id, std::size_t runs);
void put_run(std::string& out, run of);

enum class decoded : std::uint8_t { whole, more, malformed };  // more: bytes are to come
// `runs` is overwritten.
decoded take_request(std::string_view in, request& out, std::vector<run>& runs);

std::array<char, answer_bytes> make_answer(const answer& of);
// Nothing: malformed. REQUIRES: in has answer_bytes.
std::optional<answer> take_answer(std::string_view in);

}  // namespace kvd::stream_wire
