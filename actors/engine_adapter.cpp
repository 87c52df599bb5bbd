#include "actors/engine_adapter.hpp"

#include <caf/send.hpp>

namespace kvd {

void engine_adapter::register_worker(const pegaflow::RegisterContextRequest& request, done answer) {
  caf::anon_send(to_, message::register_worker{&request, reply<void>(std::move(answer))});
}

void engine_adapter::unregister(const std::string& instance_id, done answer) {
  caf::anon_send(to_, message::unregister{instance_id, reply<void>(std::move(answer))});
}

void engine_adapter::session_opened(const std::string& instance_id, std::uint64_t token) {
  caf::anon_send(to_, message::session_opened{instance_id, token});
}

void engine_adapter::session_closed(const std::string& instance_id, std::uint64_t token) {
  caf::anon_send(to_, message::session_closed{instance_id, token});
}

}  // namespace kvd
