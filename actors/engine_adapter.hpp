#pragma once
// Where gRPC's threads meet the ENGINE actor: each call becomes one message.

#include <functional>

#include "actors/interfaces.hpp"
#include "transport/grpc/engine_service.hpp"

namespace kvd {

class engine_adapter final : public engine_control {
public:
  // `on_shutdown` is called when a client asks the server to stop.
  engine_adapter(engine_actor to, std::function<void()> on_shutdown)
      : to_(std::move(to)), on_shutdown_(std::move(on_shutdown)) {}

  void register_worker(const pegaflow::RegisterContextRequest& request, done answer) override;
  void unregister(const std::string& instance_id, done answer) override;
  void session_opened(const std::string& instance_id, std::uint64_t token) override;
  void session_closed(const std::string& instance_id, std::uint64_t token) override;
  void shutdown() override { on_shutdown_(); }

private:
  engine_actor to_;
  std::function<void()> on_shutdown_;
};

}  // namespace kvd
