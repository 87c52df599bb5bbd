#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/limits.hpp"
#include "transport/peer/peer_address.hpp"
#include "transport/peer/stream_wire.hpp"

using namespace kvd;

namespace {

peer_address sample() {
  peer_address of;
  of.boot_id = std::string(boot_id_bytes, 'b');
  of.key = std::string(peer_key_bytes, 'k');
  of.regions = {{0, 4096}, {8192, 1 << 20}};
  of.stream = peer_address::stream_section{7000, {"10.0.0.1", "node-b.example"}};
  of.mapped = peer_address::mapped_section{"host", 3, 4, "/run/kvd/pool"};
  of.ucx = peer_address::ucx_section{7001, {"10.0.0.1"}, {{4096, "key1"}, {1 << 20, "key2"}}};
  return of;
}

}  // namespace

TEST_CASE("an address survives its bytes") {
  const auto bytes = encode(sample());
  REQUIRE(bytes.has_value());
  const auto back = decode_peer_address(*bytes);
  REQUIRE(back.has_value());
  CHECK(back->boot_id == sample().boot_id);
  CHECK(back->regions.size() == 2);
  CHECK(back->regions[1].pool_offset == 8192);
  CHECK(back->stream->hosts == sample().stream->hosts);
  CHECK(back->mapped->path == "/run/kvd/pool");
  CHECK(back->ucx->keys[1].rkey == "key2");
  CHECK(encode(*back) == *bytes);
}

TEST_CASE("an address that is cut anywhere or changed at its start is refused, never misread") {
  const auto bytes = *encode(sample());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto cut = decode_peer_address(bytes.substr(0, i));
    // Only whole sections may be missing.
    if (cut) CHECK(encode(*cut)->size() <= bytes.size());
  }
  auto other = bytes;
  other[4] = 2;
  CHECK(!decode_peer_address(other));
  CHECK(!decode_peer_address(""));
  CHECK(!decode_peer_address(std::string(limits::peer_address_bytes_max + 1, 'k')));
}

TEST_CASE("a section of a newer version is skipped, one that comes twice is refused") {
  auto bytes = *encode(sample());
  CHECK(decode_peer_address(bytes + std::string("\x63\x02\0\0\0xy", 7)).has_value());
  CHECK(!decode_peer_address(bytes + bytes.substr(5 + boot_id_bytes + peer_key_bytes)));
}

TEST_CASE("regions that overlap or descend are refused") {
  auto of = sample();
  of.ucx.reset();
  of.regions = {{0, 8192}, {4096, 4096}};
  CHECK(!decode_peer_address(*encode(of)));
  of.regions = {{~std::uint64_t{0} - 5, 100}};
  CHECK(!decode_peer_address(*encode(of)));
}

TEST_CASE("a request is read whole or not at all, and a malformed one is told apart") {
  using namespace stream_wire;
  std::string text;
  put_request_head(text, 7, 2);
  put_run(text, {4096, 100});
  put_run(text, {1 << 30, 5});
  request out{};
  std::vector<run> runs;
  for (std::size_t i = 0; i < text.size(); ++i)
    CHECK(take_request({text.data(), i}, out, runs) == decoded::more);
  CHECK(take_request(text + "next", out, runs) == decoded::whole);
  CHECK(out.id == 7);
  CHECK(out.bytes == 105);
  CHECK(out.frame == text.size());
  CHECK(runs[1].offset == 1 << 30);
  auto none = text;
  none[4] = 0;
  CHECK(take_request(none, out, runs) == decoded::malformed);
  auto many = text;
  many[6] = 1;
  CHECK(take_request(many, out, runs) == decoded::malformed);
  text[0] ^= 1;
  CHECK(take_request(text, out, runs) == decoded::malformed);
}

TEST_CASE("a greeting needs the key and the boot id of this run") {
  using namespace stream_wire;
  const std::string key(peer_key_bytes, 'k');
  const std::string boot(boot_id_bytes, 'b');
  std::string text;
  put_greeting(text, key, boot);
  CHECK(check_greeting(text, key, boot) == status::ok);
  CHECK(check_greeting(text, key, std::string(boot_id_bytes, 'c')) == status::refused);
  CHECK(check_greeting(text, std::string(peer_key_bytes, 'x'), boot) == status::refused);
  text[0] ^= 1;
  CHECK(check_greeting(text, key, boot) == status::malformed);
}
