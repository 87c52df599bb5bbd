#include "transport/peer/peer_address.hpp"

#include <utility>

#include <fmt/format.h>

#include "core/limits.hpp"
#include "transport/peer/wire_bytes.hpp"

namespace kvd {

namespace {

constexpr std::string_view address_magic = "kvdp";
constexpr std::uint8_t address_version = 1;
enum class section : std::uint8_t { regions = 1, stream = 2, mapped = 3, ucx = 4 };

void put_section(std::string& out, section type, std::string_view body) {
  wire_writer writer(out);
  writer.number(static_cast<std::uint8_t>(type));
  writer.counted<std::uint32_t>(body);
}

void put_hosts(wire_writer& writer, std::uint16_t port, const std::vector<std::string>& hosts) {
  writer.number(port);
  writer.number(static_cast<std::uint8_t>(hosts.size()));
  for (const auto& host : hosts)
    writer.counted<std::uint8_t>(host);
}

result<void> take_regions(wire_reader in, peer_address& out) {
  const auto count = in.number<std::uint16_t>();
  if (count > limits::peer_regions_max) return fail(errc::invalid_argument, "too many regions");
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    const auto offset = in.number<std::uint64_t>();
    const auto bytes = in.number<std::uint64_t>();
    if (offset < end || bytes == 0 || bytes > limits::pool_bytes_max ||
        offset > limits::pool_bytes_max) {
      return fail(errc::invalid_argument, fmt::format("region {} is not ascending", i));
    }
    end = offset + bytes;
    out.regions.push_back({offset, bytes});
  }
  if (!in.ok()) return fail(errc::invalid_argument, "the regions are cut short");
  return {};
}

result<void> take_hosts(wire_reader& in, std::uint16_t& port, std::vector<std::string>& hosts) {
  port = in.number<std::uint16_t>();
  const auto count = in.number<std::uint8_t>();
  if (count > limits::peer_hosts_max) return fail(errc::invalid_argument, "too many hosts");
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    const auto host = in.counted<std::uint8_t>();
    if (host.empty() || host.find('\0') != host.npos) {
      return fail(errc::invalid_argument, "a host is empty or no text");
    }
    hosts.emplace_back(host);
  }
  if (!in.ok() || port == 0 || hosts.empty()) {
    return fail(errc::invalid_argument, "a link without port or hosts");
  }
  return {};
}

result<void> take_stream(wire_reader in, peer_address& out) {
  return take_hosts(in, out.stream.emplace().port, out.stream->hosts);
}

result<void> take_mapped(wire_reader in, peer_address& out) {
  auto& mapped = out.mapped.emplace();
  mapped.host_id = in.counted<std::uint8_t>();
  mapped.device = in.number<std::uint64_t>();
  mapped.inode = in.number<std::uint64_t>();
  mapped.path = in.counted<std::uint8_t>();
  if (!in.ok() || mapped.path.empty() || mapped.path.find('\0') != mapped.path.npos) {
    return fail(errc::invalid_argument, "the link within a host is cut short");
  }
  return {};
}

result<void> take_ucx(wire_reader in, peer_address& out) {
  auto& ucx = out.ucx.emplace();
  if (auto hosts = take_hosts(in, ucx.port, ucx.hosts); !hosts) return hosts;
  const auto count = in.number<std::uint16_t>();
  if (count > limits::peer_regions_max) return fail(errc::invalid_argument, "too many keys");
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    const auto address = in.number<std::uint64_t>();
    ucx.keys.push_back({address, std::string(in.counted<std::uint16_t>())});
  }
  if (!in.ok()) return fail(errc::invalid_argument, "the keys are cut short");
  return {};
}

result<void> take_section(section type, wire_reader body, peer_address& out) {
  switch (type) {
  case section::regions:
    if (!out.regions.empty()) break;
    return take_regions(body, out);
  case section::stream:
    if (out.stream) break;
    return take_stream(body, out);
  case section::mapped:
    if (out.mapped) break;
    return take_mapped(body, out);
  case section::ucx:
    if (out.ucx) break;
    return take_ucx(body, out);
  default: return {};
  }
  return fail(errc::invalid_argument, "a section comes twice");
}

result<peer_address> wrong(std::string_view what) {
  return fail(errc::invalid_argument,
              fmt::format("these bytes are no address of a peer: {}", what));
}

}  // namespace

result<std::string> encode(const peer_address& address) {
  std::string out(address_magic);
  wire_writer head(out);
  head.number(address_version);
  head.bytes(address.boot_id);
  head.bytes(address.key);
  {
    std::string body;
    wire_writer writer(body);
    writer.number(static_cast<std::uint16_t>(address.regions.size()));
    for (const auto& region : address.regions) {
      writer.number(region.pool_offset);
      writer.number(region.bytes);
    }
    put_section(out, section::regions, body);
  }
  if (address.stream) {
    std::string body;
    wire_writer writer(body);
    put_hosts(writer, address.stream->port, address.stream->hosts);
    put_section(out, section::stream, body);
  }
  if (address.mapped) {
    std::string body;
    wire_writer writer(body);
    writer.counted<std::uint8_t>(address.mapped->host_id);
    writer.number(address.mapped->device);
    writer.number(address.mapped->inode);
    writer.counted<std::uint8_t>(address.mapped->path);
    put_section(out, section::mapped, body);
  }
  if (address.ucx) {
    std::string body;
    wire_writer writer(body);
    put_hosts(writer, address.ucx->port, address.ucx->hosts);
    writer.number(static_cast<std::uint16_t>(address.ucx->keys.size()));
    for (const auto& key : address.ucx->keys) {
      writer.number(key.address);
      writer.counted<std::uint16_t>(key.rkey);
    }
    put_section(out, section::ucx, body);
  }
  if (out.size() > limits::peer_address_bytes_max) {
    return fail(errc::limit_exceeded,
                fmt::format("the address of this node's pool takes {} bytes, at most {}",
                            out.size(), limits::peer_address_bytes_max));
  }
  return out;
}

result<peer_address> decode_peer_address(std::string_view bytes) {
  if (bytes.size() > limits::peer_address_bytes_max) return wrong("too long");
  wire_reader in(bytes);
  if (in.bytes(address_magic.size()) != address_magic) return wrong("they begin otherwise");
  if (const auto version = in.number<std::uint8_t>(); in.ok() && version != address_version) {
    return wrong(fmt::format("version {}, this node knows {}", version, address_version));
  }
  peer_address out;
  out.boot_id = in.bytes(boot_id_bytes);
  out.key = in.bytes(peer_key_bytes);
  while (in.ok() && in.left() > 0) {
    const auto type = static_cast<section>(in.number<std::uint8_t>());
    const auto body = in.counted<std::uint32_t>();
    if (!in.ok()) break;
    if (auto taken = take_section(type, wire_reader(body), out); !taken) {
      return wrong(taken.error().detail);
    }
  }
  if (!in.ok()) return wrong("they are cut short");
  if (out.ucx && out.ucx->keys.size() != out.regions.size()) return wrong("keys without regions");
  return out;
}

}  // namespace kvd
