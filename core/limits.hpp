#pragma once
// Every bound of kvd in one place. Full is an answer: what reaches a bound is refused with an error
// that names the bound, or dropped and counted. Each number carries its reason.

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace kvd::limits {

// gRPC messages, both ways: what PegaFlow's client and server allow.
inline constexpr int grpc_message_bytes_max = 64 << 20;
// HTTP: no endpoint of the server role takes a body, so a small bound stops abuse.
inline constexpr std::size_t http_body_bytes_max = 64 << 10;
inline constexpr std::size_t http_header_bytes_max = 16 << 10;
inline constexpr std::size_t http_connections_max = 1024;
// A whole request, from its first byte: 80 KiB take a second on a bad line, a slow attacker longer.
inline constexpr std::chrono::seconds http_request_time_max{10};
// Between requests of one connection; above the 60 s at which common proxies give up.
inline constexpr std::chrono::seconds http_idle_time_max{75};
// For a handler's answer; a memory cleanup of a big pool is the slowest, some seconds.
inline constexpr std::chrono::seconds http_answer_time_max{60};
// For the client to take its answer, and after the last one to close its side.
inline constexpr std::chrono::seconds http_write_time_max{30};
inline constexpr std::chrono::seconds http_linger_time_max{2};

// Registers of the hit-rate ceiling; the default windows take 4 MiB.
inline constexpr std::uint64_t hit_ceiling_bytes_max = 64 << 20;
// Namespaces with series of their own; clients choose the names, so there is a bound.
inline constexpr std::size_t metrics_namespaces_max = 256;
// For a collector to take one export.
inline constexpr std::chrono::seconds push_time_max{10};

// Identifiers that clients choose and we keep for as long as the instance lives.
inline constexpr std::size_t id_bytes_max = 512;
// A block hash is opaque: 16 (xxhash) or 32 (sha256) bytes in practice, 64 for sha512.
inline constexpr std::size_t hash_bytes_max = 64;
inline constexpr std::size_t instances_max = 1024;
// Blocks that the index can hold: 64 Mi records are 6 GiB of index.
inline constexpr std::uint64_t blocks_max = std::uint64_t{1} << 26;
// Blocks that a registration makes tables for at once: about 100 MiB of policy and buckets.
inline constexpr std::uint64_t blocks_planned_max = std::uint64_t{4} << 20;
// (namespace, group, layout) triples ever seen; they are never forgotten.
inline constexpr std::size_t scopes_max = 1 << 16;
inline constexpr std::uint32_t world_size_max = 4096;
inline constexpr std::size_t layers_per_worker_max = 4096;
inline constexpr std::size_t layer_groups_max = 64;
inline constexpr std::size_t wrapper_bytes_max = 64 << 10;
// (layer, tp rank) cells of one block; 61 layers at TP 8 are 488.
inline constexpr std::uint32_t slots_per_block_max = 1 << 16;

// A 1M-token prompt in 16-token blocks is 65,536 hashes; 64 MiB cannot carry more than 2 M.
inline constexpr std::size_t hashes_per_query_max = 1 << 20;
inline constexpr std::size_t leases_max = 1 << 16;
inline constexpr std::chrono::seconds lease_ttl_default{600};
// Blocks of which a metaserver says that others hold copies enough.
inline constexpr std::size_t reclaim_hints_max = 1 << 20;
// Transfers out of this pool that other nodes have under way.
inline constexpr std::size_t transfer_sessions_max = 1 << 16;
// Unsealed blocks whose other workers never came; PegaFlow's figure.
inline constexpr std::chrono::seconds unsealed_age_max{300};

// Copy jobs that wait for a copy thread, per direction.
inline constexpr std::size_t copy_jobs_max = 4096;
// The stock client gives up on a load after 120 s and then reuses the memory, so we stop before.
inline constexpr std::chrono::seconds load_deadline{110};
// A save that waits for another worker's copy of the same block answers after this at the latest.
inline constexpr std::chrono::seconds save_wait_max{30};

// Peers: an address is a few hundred bytes, and 32 more a region and network card.
inline constexpr std::size_t peer_address_bytes_max = 64 << 10;
inline constexpr std::size_t peer_regions_max = 256;
inline constexpr std::size_t peer_hosts_max = 32;
// Pieces of one read: 4 GiB in the smallest parts that pay.
inline constexpr std::size_t peer_pieces_max = 1 << 20;

// Pool: the unit of every address in it; O_DIRECT's smallest logical block.
inline constexpr std::size_t pool_unit_bytes = 512;
inline constexpr std::uint64_t pool_bytes_max = std::uint64_t{pool_unit_bytes} << 32;  // 2 TiB

// Directory (metaserver): sessions of nodes, those that are being forgotten included.
inline constexpr std::uint32_t directory_nodes_max = 4096;
// Records of 40 bytes: 80 GiB. Their numbers have 32 bits.
inline constexpr std::uint64_t directory_owners_max = std::uint64_t{1} << 31;
// A hash of a cache group is the engine's hash and a suffix.
inline constexpr std::size_t directory_hash_bytes_max = 2 * hash_bytes_max;
// Nodes of one position in an answer of Locate: enough to go on when several fail.
inline constexpr std::size_t directory_located_owners_max = 8;

// Options: more network cards, devices or windows than this are a mistake.
inline constexpr std::size_t option_list_items_max = 256;
// A configuration or token file; the commented example of every option is a tenth of it.
inline constexpr std::size_t config_file_bytes_max = 64 << 10;

}  // namespace kvd::limits
