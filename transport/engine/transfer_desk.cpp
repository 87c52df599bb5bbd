#include "transport/engine/transfer_desk.hpp"

#include <fmt/format.h>

#include "transport/engine/hashes.hpp"

namespace kvd {

void transfer_desk::hello(HelloResponse& answer) const {
  answer.set_boot_id(boot_id_);
  answer.set_address(address_);
}

result<void> transfer_desk::lock(const LockRequest& request, LockResponse& answer) {
  if (request.boot_id() != boot_id_) {
    return fail(errc::instance_missing, "this node was started anew: say hello");
  }
  if (auto hashes = check_hashes(request.block_hashes()); !hashes) return hashes;
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(locks_.timeout());
  answer.set_lock_timeout_ms(static_cast<std::uint32_t>(timeout.count()));
  const auto in = store_.find_scope(request.namespace_(), request.group(),
                                    {request.layout_low(), request.layout_high()});
  if (!in) return {};  // nobody here ever had such blocks
  const auto open = locks_.lock(*in, as_hash_list(request.block_hashes()));
  if (!open) return tl::unexpected<error>(open.error());
  answer.set_session_id(open->id);
  answer.mutable_positions()->Add(open->positions.begin(), open->positions.end());
  const auto parts = static_cast<std::uint32_t>(store_.scope_of(*in).parts.size());
  answer.mutable_steps()->Reserve(static_cast<int>(open->blocks.size() * parts));
  std::int64_t before = 0;
  for (const auto block : open->blocks) {
    for (std::uint32_t part = 0; part < parts; ++part) {
      const std::int64_t unit = store_.part_unit(block, part);
      answer.add_steps(unit - before);
      before = unit;
    }
  }
  return {};
}

void transfer_desk::unlock(const UnlockRequest& request, UnlockResponse& answer) {
  answer.set_released_blocks(locks_.unlock(request.session_id()));
}

}  // namespace kvd
