#include "transport/grpc/call_set.hpp"

#include "core/limits.hpp"

namespace kvd {

namespace {

// A lost SYN is sent again by a new attempt, not by the kernel a second later.
constexpr int connect_time_ms = 500;
constexpr int backoff_first_ms = 100;
constexpr int backoff_max_ms = 2'000;
// A host that is gone without a word is noticed by unanswered pings.
constexpr int ping_period_ms = 10'000;
constexpr int ping_answer_ms = 5'000;

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(limits::grpc_message_bytes_max);
  arguments.SetMaxSendMessageSize(limits::grpc_message_bytes_max);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, connect_time_ms);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, backoff_first_ms);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, backoff_max_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ping_period_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ping_answer_ms);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace kvd
