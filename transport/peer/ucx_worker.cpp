#include "transport/peer/ucx_worker.hpp"

#include <algorithm>
#include <cassert>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <ucs/debug/log_def.h>

#include "core/limits.hpp"
#include "core/log.hpp"
#include "transport/peer/socket_address.hpp"
#include "transport/peer/stream_wire.hpp"
#include "transport/peer/ucx_link.hpp"

namespace kvd {

namespace {

tl::unexpected<error> refused_by_ucx(std::string_view what, ucs_status_t status) {
  return fail(errc::io, fmt::format("UCX: {}: {}", what, ucs_status_string(status)));
}

ucs_log_func_rc_t to_our_log(const char*, unsigned, const char*, ucs_log_level_t,
                             const ucs_log_component_config_t*, const char* format,
                             va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  log::debug("ucx", "{}", line);
  return UCS_LOG_FUNC_RC_STOP;
}

// Unknown keys are accepted and warned about later: these are known to 1.13.
ucs_status_t configure(ucp_config_t* config, const ucx_settings& how) {
  const auto devices = fmt::format("{}", fmt::join(how.devices, ","));
  const std::pair<const char*, std::string> wanted[] = {
      {"TLS", how.tcp ? "tcp" : "rc,ud"},
      {"NET_DEVICES", devices},
      // Both: a receive segment below the send segment is refused.
      {"TX_SEG_SIZE", how.tcp ? "1M" : ""},
      {"RX_SEG_SIZE", how.tcp ? "1M" : ""},
      {"KEEPALIVE_INTERVAL", "1s"},
  };
  for (const auto& [key, value] : wanted) {
    if (value.empty()) continue;
    const auto status = ucp_config_modify(config, key, value.c_str());
    if (status != UCS_OK) return status;
  }
  return UCS_OK;
}

}  // namespace

void quiet_ucx_log() noexcept {
  static const bool once = [] {
    ucs_log_push_handler(to_our_log);
    return true;
  }();
  (void)once;
}

ucx_worker::ucx_worker(event_loop& loop, peer_metrics& metrics,
                       std::span<const peer_region> regions, std::string key, std::string boot_id)
    : loop_(loop), metrics_(metrics), regions_(regions), key_(std::move(key)),
      boot_id_(std::move(boot_id)) {
  stream_wire::put_greeting_answer(yes_, stream_wire::status::ok);
}

ucx_worker::~ucx_worker() {
  if (event_fd_ >= 0) loop_.forget(event_fd_, *this);
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  failed_ = guests_;
  if (worker_ != nullptr) {
    close_failed();
    // Forced closes end within a few turns; the worker's end takes what does not.
    for (int turn = 0; turn < 1000 && !closing_.empty(); ++turn) {
      while (ucp_worker_progress(worker_) != 0) {
      }
      std::erase_if(closing_, [](void* request) {
        const bool over = ucp_request_check_status(request) != UCS_INPROGRESS;
        if (over) ucp_request_free(request);
        return over;
      });
    }
    ucp_worker_destroy(worker_);
  }
  for (const auto& region : registered_)
    ucp_mem_unmap(context_, region.handle);
  if (context_ != nullptr) ucp_cleanup(context_);
}

result<void> ucx_worker::open(const ucx_settings& how, peer_address::ucx_section& out) {
  quiet_ucx_log();
  if (auto opened = open_worker(how); !opened) return opened;
  if (auto offered = offer(out); !offered) return offered;
  return listen(how, out);
}

result<void> ucx_worker::open_worker(const ucx_settings& how) {
  ucp_config_t* config = nullptr;
  auto status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return refused_by_ucx("reading its settings", status);
  status = configure(config, how);
  ucp_params_t context{};
  context.field_mask = UCP_PARAM_FIELD_FEATURES;
  context.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) status = ucp_init(&context, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    context_ = nullptr;
    return refused_by_ucx(fmt::format("devices {}", fmt::join(how.devices, ", ")), status);
  }
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  worker.events = UCP_WAKEUP_RMA | UCP_WAKEUP_TX | UCP_WAKEUP_RX;
  status = ucp_worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return refused_by_ucx("a worker", status);
  }
  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK || !loop_.watch(event_fd_, EPOLLIN, *this)) {
    event_fd_ = -1;
    return refused_by_ucx("waiting for events", status);
  }
  return handle_messages();
}

result<void> ucx_worker::handle_messages() {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.arg = this;
  handler.id = ucx_greeting_id;
  handler.cb = greeted;
  auto status = ucp_worker_set_am_recv_handler(worker_, &handler);
  handler.id = ucx_answer_id;
  handler.cb = answer_came;
  if (status == UCS_OK) status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return refused_by_ucx("active messages", status);
  return {};
}

result<void> ucx_worker::offer(peer_address::ucx_section& out) {
  for (const auto& region : regions_) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = region.base;
    params.length = region.bytes;
    ucp_mem_h handle = nullptr;
    auto status = ucp_mem_map(context_, &params, &handle);
    if (status != UCS_OK) {
      return refused_by_ucx(fmt::format("registering {} bytes of the pool", region.bytes), status);
    }
    registered_.push_back({region.base, region.bytes, handle});
    void* packed = nullptr;
    std::size_t bytes = 0;
    status = ucp_rkey_pack(context_, handle, &packed, &bytes);
    if (status != UCS_OK) return refused_by_ucx("a key of the pool", status);
    out.keys.push_back({reinterpret_cast<std::uintptr_t>(region.base),
                        std::string(static_cast<const char*>(packed), bytes)});
    ucp_rkey_buffer_release(packed);
  }
  return {};
}

result<void> ucx_worker::listen(const ucx_settings& how, peer_address::ucx_section& out) {
  auto where = resolve(how.listen_host, how.listen_port);
  if (!where) return tl::unexpected(std::move(where.error()));
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {where->front().get(), where->front().bytes};
  params.conn_handler = {asked, this};
  auto status = ucp_listener_create(worker_, &params, &listener_);
  if (status != UCS_OK) {
    listener_ = nullptr;
    return refused_by_ucx(fmt::format("listening on {}", where->front().to_string()), status);
  }
  ucp_listener_attr_t bound{};
  bound.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(listener_, &bound);
  if (status != UCS_OK) return refused_by_ucx("the listener's port", status);
  socket_address at;
  at.storage = bound.sockaddr;
  out.port = at.port();
  return {};
}

void ucx_worker::asked(ucp_conn_request_h request, void* self) noexcept {
  auto& worker = *static_cast<ucx_worker*>(self);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {failed, self};
  ucp_ep_h endpoint = nullptr;
  if (ucp_ep_create(worker.worker_, &params, &endpoint) == UCS_OK) {
    worker.guests_.push_back(endpoint);
  }
}

void ucx_worker::failed(void* self, ucp_ep_h endpoint, ucs_status_t) noexcept {
  auto& worker = *static_cast<ucx_worker*>(self);
  worker.failed_.push_back(endpoint);
  worker.loop_.wake();
}

ucs_status_t ucx_worker::greeted(void* self, const void*, std::size_t, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* how) noexcept {
  auto& worker = *static_cast<ucx_worker*>(self);
  const bool whole = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 &&
                     (how->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 &&
                     bytes == stream_wire::greeting_bytes;
  const auto status = whole ? stream_wire::check_greeting({static_cast<const char*>(data), bytes},
                                                          worker.key_, worker.boot_id_)
                            : stream_wire::status::malformed;
  if (status != stream_wire::status::ok) {
    // No answer: the reader's connect deadline passes. Its endpoint can do nothing without keys.
    worker.metrics_.served_refusals.add();
    return UCS_OK;
  }
  worker.metrics_.served_requests.add();
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK;
  params.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  params.cb.send = [](void* request, ucs_status_t, void*) { ucp_request_free(request); };
  ucp_am_send_nbx(how->reply_ep, ucx_answer_id, nullptr, 0, worker.yes_.data(), worker.yes_.size(),
                  &params);
  return UCS_OK;
}

ucs_status_t ucx_worker::answer_came(void* self, const void* head, std::size_t head_bytes,
                                     void* data, std::size_t bytes,
                                     const ucp_am_recv_param_t* how) noexcept {
  auto& worker = *static_cast<ucx_worker*>(self);
  (void)head;
  (void)head_bytes;
  const bool whole = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 &&
                     (how->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 &&
                     bytes == stream_wire::greeting_answer_bytes;
  if (!whole) return UCS_OK;
  const auto link = worker.expecting_.find(how->reply_ep);
  if (link == worker.expecting_.end()) return UCS_OK;
  const auto status = stream_wire::take_greeting_answer({static_cast<const char*>(data), bytes});
  link->second->answered(status == stream_wire::status::ok);
  return UCS_OK;
}

void ucx_worker::expect_answer(ucp_ep_h endpoint, ucx_link* link) noexcept {
  if (link != nullptr) {
    expecting_[endpoint] = link;
  } else {
    expecting_.erase(endpoint);
  }
}

void ucx_worker::close_failed() noexcept {
  for (auto* const endpoint : failed_) {
    std::erase(guests_, endpoint);
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(endpoint, &params);
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) closing_.push_back(request);
  }
  failed_.clear();
}

time_point ucx_worker::tick(time_point now) noexcept {
  // Bounded, so that the other links have their turn under constant load.
  constexpr int turns_max = 256;
  int turns = 0;
  while (turns < turns_max && ucp_worker_progress(worker_) != 0)
    ++turns;
  close_failed();
  std::erase_if(closing_, [](void* request) {
    const bool over = ucp_request_check_status(request) != UCS_INPROGRESS;
    if (over) ucp_request_free(request);
    return over;
  });
  if (turns == turns_max || !closing_.empty()) return now;
  return ucp_worker_arm(worker_) == UCS_OK ? time_point::max() : now;
}

ucp_mem_h ucx_worker::registration_of(const std::byte* at, std::uint64_t bytes) const noexcept {
  for (const auto& region : registered_) {
    if (at >= region.base && at + bytes <= region.base + region.bytes) return region.handle;
  }
  return nullptr;
}

}  // namespace kvd
