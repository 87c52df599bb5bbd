#include "transport/peer/ucx_link.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>

#include <fmt/format.h>

#include "transport/peer/pool_lookup.hpp"
#include "transport/peer/stream_wire.hpp"

namespace kvd {

namespace {

// Gets posted and not completed; a device's queue is of this order.
constexpr std::size_t gets_max = 4096;
// How long an abandoned get may take to end by itself before the endpoint is closed under it.
constexpr std::chrono::milliseconds quarantine_patience{500};

}  // namespace

ucx_link::ucx_link(ucx_worker& worker, event_loop& loop, link_events& events,
                   const peer_address& address, std::vector<socket_address> hosts)
    : worker_(worker), loop_(loop), events_(events), address_(address), hosts_(std::move(hosts)) {
  stream_wire::put_greeting(greeting_, address.key, address.boot_id);
}

ucx_link::~ucx_link() {
  assert(quiet());
}

void ucx_link::connect(time_point deadline) noexcept {
  deadline_ = deadline;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {failed, this};
  auto status = UCS_ERR_UNREACHABLE;
  while (status != UCS_OK && next_host_ < hosts_.size()) {
    const auto& to = hosts_[next_host_++];
    params.sockaddr = {to.get(), to.bytes};
    status = ucp_ep_create(worker_.handle(), &params, &endpoint_);
    if (status != UCS_OK) endpoint_ = nullptr;
  }
  if (status != UCS_OK) return lose(ucs_status_string(status));
  worker_.expect_answer(endpoint_, this);
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK;
  how.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  how.cb.send = [](void* request, ucs_status_t, void*) { ucp_request_free(request); };
  void* const sent = ucp_am_send_nbx(endpoint_, ucx_greeting_id, nullptr, 0, greeting_.data(),
                                     greeting_.size(), &how);
  if (UCS_PTR_IS_ERR(sent)) lose(ucs_status_string(UCS_PTR_STATUS(sent)));
}

void ucx_link::answered(bool yes) noexcept {
  if (yes) {
    answered_ = true;
  } else {
    lose("the holder answered something else");
  }
  loop_.wake();
}

void ucx_link::failed(void* self, ucp_ep_h, ucs_status_t status) noexcept {
  static_cast<ucx_link*>(self)->lose(ucs_status_string(status));
}

// The forced close is tick()'s: this may be inside a callback of UCX.
void ucx_link::lose(std::string why) noexcept {
  if (lost_) return;
  lost_ = true;
  why_ = std::move(why);
  loop_.wake();
}

void ucx_link::unpack_keys() noexcept {
  for (const auto& key : address_.ucx->keys) {
    ucp_rkey_h unpacked = nullptr;
    const auto status = ucp_ep_rkey_unpack(endpoint_, key.rkey.data(), &unpacked);
    if (status != UCS_OK) return lose(fmt::format("a key: {}", ucs_status_string(status)));
    keys_.push_back(unpacked);
  }
  up_ = true;
  events_.link_up();
}

bool ucx_link::ready() const noexcept {
  return up_ && !lost_ && gets_ < gets_max;
}

void ucx_link::submit(peer_transfer& transfer) noexcept {
  if (spare_batches_.empty()) {
    batches_.push_back(std::make_unique<batch>());
    spare_batches_.push_back(batches_.back().get());
  }
  auto& next = *spare_batches_.back();
  spare_batches_.pop_back();
  next = {this, &transfer, 1, false, false};
  transfer.link_state = &next;
  for (std::size_t i = 0; i < transfer.fragments.size() && !next.failed; ++i) {
    transfer.fragments[i].done = false;
    next.failed = !post(next, i);
  }
  if (--next.left == 0) over(next);
}

bool ucx_link::post(batch& of, std::size_t fragment) noexcept {
  auto& wanted = of.transfer->fragments[fragment];
  const auto& regions = address_.regions;
  std::size_t number = 0;
  while (number < regions.size() &&
         (wanted.offset < regions[number].pool_offset ||
          wanted.offset - regions[number].pool_offset >= regions[number].bytes)) {
    ++number;
  }
  if (number == regions.size()) return false;
  const auto inside = wanted.offset - regions[number].pool_offset;
  if (wanted.bytes > regions[number].bytes - inside) return false;
  if (spare_gets_.empty()) {
    made_gets_.push_back(std::make_unique<get>());
    spare_gets_.push_back(made_gets_.back().get());
  }
  auto& next = *spare_gets_.back();
  next = {&of, fragment};
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.cb.send = completed;
  how.user_data = &next;
  how.memh = worker_.registration_of(wanted.to, wanted.bytes);
  if (how.memh != nullptr) how.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  void* const request =
      ucp_get_nbx(endpoint_, wanted.to, wanted.bytes, address_.ucx->keys[number].address + inside,
                  keys_[number], &how);
  if (UCS_PTR_IS_ERR(request)) {
    lose(ucs_status_string(UCS_PTR_STATUS(request)));
    return false;
  }
  if (request == nullptr) {
    wanted.done = true;  // already
    return true;
  }
  spare_gets_.pop_back();
  ++of.left;
  ++gets_;
  return true;
}

void ucx_link::completed(void* request, ucs_status_t status, void* of) noexcept {
  auto& ended = *static_cast<get*>(of);
  ended.of->link->ended(ended, status);
  ucp_request_free(request);
}

void ucx_link::ended(get& of, ucs_status_t status) noexcept {
  auto& whole = *of.of;
  if (status == UCS_OK) {
    whole.transfer->fragments[of.fragment].done = true;
  } else {
    whole.failed = true;
  }
  spare_gets_.push_back(&of);
  --gets_;
  if (--whole.left == 0) over(whole);
}

void ucx_link::over(batch& of) noexcept {
  over_.push_back(&of);
  loop_.wake();
}

bool ucx_link::abandon(peer_transfer& transfer, time_point now) noexcept {
  auto& of = *static_cast<batch*>(transfer.link_state);
  of.abandoned = true;
  quarantine_until_ = std::min(quarantine_until_, now + quarantine_patience);
  return false;
}

void ucx_link::give_back() noexcept {
  bool abandoned = false;
  for (std::size_t i = 0; i < over_.size(); ++i) {
    auto& of = *over_[i];
    auto& transfer = *of.transfer;
    spare_batches_.push_back(&of);
    const auto refused = of.failed && !lost_;
    const auto end = refused     ? transfer_end::refused
                     : of.failed ? transfer_end::lost
                                 : transfer_end::done;
    of.transfer = nullptr;
    events_.transfer_over(transfer, end);
  }
  over_.clear();
  for (const auto& each : batches_)
    abandoned = abandoned || (each->transfer != nullptr && each->abandoned);
  if (!abandoned) quarantine_until_ = time_point::max();
}

time_point ucx_link::tick(time_point now) noexcept {
  if (down_) return time_point::max();
  if (answered_ && !up_ && !lost_) unpack_keys();
  if (!up_ && !lost_ && now >= deadline_) lose("the holder does not answer");
  if (now >= quarantine_until_) lose("gets of a read that is over did not end");
  if (lost_ && endpoint_ != nullptr && closing_ == nullptr) {
    worker_.expect_answer(endpoint_, nullptr);
    for (auto* const key : keys_)
      ucp_rkey_destroy(key);
    keys_.clear();
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    closing_ = ucp_ep_close_nbx(endpoint_, &how);
    if (closing_ == nullptr || UCS_PTR_IS_ERR(closing_)) {
      closing_ = nullptr;
      endpoint_ = nullptr;
    }
  }
  if (closing_ != nullptr && ucp_request_check_status(closing_) != UCS_INPROGRESS) {
    ucp_request_free(closing_);
    closing_ = nullptr;
    endpoint_ = nullptr;
  }
  give_back();
  if (lost_ && endpoint_ == nullptr && gets_ == 0) {
    down_ = true;
    events_.link_down(up_ ? peer_outcome::link_lost : peer_outcome::unreachable, why_);
    return time_point::max();
  }
  if (lost_) return now;
  return up_ ? quarantine_until_ : deadline_;
}

void ucx_link::close() noexcept {
  lose("closed");
}

}  // namespace kvd
