// The server's shell: listens, admits connections, sweeps their deadlines, drains.

#include "transport/http/http_server.hpp"

#include <mutex>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <pthread.h>

#include "core/log.hpp"
#include "transport/http/byte_exchange.hpp"
#include "transport/http/connection.hpp"
#include "transport/http/http_message.hpp"
#include "transport/http/listen_address.hpp"
#include "transport/http/port_holder.hpp"
#include "transport/http/request_reader.hpp"
#include "transport/http/route_table.hpp"

namespace kvd::http {

namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

// How late a deadline may be noticed; they are counted in seconds.
constexpr std::chrono::milliseconds sweep_period{200};

bool is_loopback(const asio::ip::address& peer) {
  if (peer.is_v6() && peer.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, peer.to_v6()).is_loopback();
  return peer.is_loopback();
}

class beast_server final : public server {
public:
  beast_server(std::shared_ptr<shared_state> shared, std::size_t connections_max)
      : connections_max_(connections_max), shared_(std::move(shared)), acceptor_(shared_->io),
        sweep_(shared_->io), grace_(shared_->io) {}
  ~beast_server() override { stop(0); }

  result<void> listen(const std::string& address) {
    const auto wanted = parse_listen_address(address);
    if (!wanted) return tl::unexpected(wanted.error());
    error_code ec;
    const tcp::endpoint where(asio::ip::make_address(wanted->ip, ec), wanted->port);
    acceptor_.open(where.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(where, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (ec == asio::error::address_in_use)
      return fail(errc::io, fmt::format("cannot listen on http address {}: {}; it is held by {}",
                                        address, ec.message(), port_holder(where.port())));
    if (ec)
      return fail(errc::io,
                  fmt::format("cannot listen on http address {}: {}", address, ec.message()));
    port_ = acceptor_.local_endpoint(ec).port();
    return {};
  }

  void run() {
    accept();
    sweep();
    thread_ = std::thread([shared = shared_] {
      pthread_setname_np(pthread_self(), "kvd-http");
      shared->io.run();
    });
  }

  std::uint16_t port() const noexcept override { return port_; }

  void stop(unsigned grace_ms) override {
    // One caller stops; others wait for it to be over.
    const std::lock_guard lock(stop_mutex_);
    if (!thread_.joinable()) return;
    asio::post(shared_->io, [this, grace_ms] { drain(grace_ms); });
    thread_.join();
    shared_->open.clear();
  }

private:
  void accept() {
    acceptor_.async_accept([this](error_code ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted || !acceptor_.is_open()) return;
      if (ec) {
        // Out of descriptors, most likely. The sweep tries again, so that this cannot spin.
        if (!accept_failed_) log::error("http", "cannot accept: {}", ec.message());
        accept_failed_ = true;
        accept_waits_ = true;
        return;
      }
      accept_failed_ = false;
      admit(std::move(socket));
      accept();
    });
  }

  void admit(tcp::socket socket) {
    error_code ec;
    const auto peer = socket.remote_endpoint(ec);
    if (ec) return;  // gone already
    socket.set_option(tcp::no_delay(true), ec);
    // Refusals have their own, equal allowance, above which connections close without a word.
    if (shared_->open.size() >= 2 * connections_max_) return;
    auto added =
        std::make_shared<connection>(std::move(socket), is_loopback(peer.address()), shared_);
    const bool full = shared_->open.size() >= connections_max_;
    shared_->open.insert(added);
    if (full)
      added->turn_away(connections_max_);
    else
      added->start();
  }

  void sweep() {
    sweep_.expires_after(sweep_period);
    sweep_.async_wait([this](error_code ec) {
      if (ec) return;
      const auto now = shared_->time->now();
      const std::vector<std::shared_ptr<connection>> all(shared_->open.begin(),
                                                         shared_->open.end());
      for (const auto& each : all)
        each->check_deadline(now);
      if (accept_waits_ && acceptor_.is_open()) {
        accept_waits_ = false;
        accept();
      }
      sweep();
    });
  }

  void drain(unsigned grace_ms) {
    error_code ignored;
    acceptor_.close(ignored);
    shared_->draining = true;
    const std::vector<std::shared_ptr<connection>> all(shared_->open.begin(), shared_->open.end());
    for (const auto& each : all)
      each->drain();
    if (shared_->open.empty()) {
      shared_->io.stop();
      return;
    }
    grace_.expires_after(std::chrono::milliseconds(grace_ms));
    grace_.async_wait([this](error_code ec) {
      if (!ec) shared_->io.stop();
    });
  }

  const std::size_t connections_max_;
  std::shared_ptr<shared_state> shared_;  // shared with late responders; see shared_state
  tcp::acceptor acceptor_;
  asio::steady_timer sweep_;
  asio::steady_timer grace_;
  std::thread thread_;
  std::mutex stop_mutex_;
  std::uint16_t port_ = 0;
  bool accept_failed_ = false;  // logged already
  bool accept_waits_ = false;   // for the sweep to try again
};

}  // namespace

result<std::unique_ptr<server>> server::start(server_options options, std::vector<route> routes) {
  static const system_clock default_clock;
  try {
    auto table = route_table::build(std::move(routes), std::move(options.admin_token));
    if (!table) return tl::unexpected(table.error());
    auto shared = std::make_shared<shared_state>(std::move(*table));
    shared->time = options.time != nullptr ? options.time : &default_clock;
    auto started = std::make_unique<beast_server>(std::move(shared), options.connections_max);
    if (auto listening = started->listen(options.address); !listening)
      return tl::unexpected(listening.error());
    started->run();
    log::info("http", "listening address={} port={}", options.address, started->port());
    return started;
  } catch (const std::exception& thrown) {
    return fail(errc::io, fmt::format("cannot start the http server on {}: {}", options.address,
                                      thrown.what()));
  }
}

std::string answer_bytes(const route_table& routes, std::string_view bytes, bool peer_is_loopback) {
  request_reader reader;
  std::string out;
  std::size_t taken = 0;
  while (true) {
    auto parsed = reader.parse();
    while (parsed == request_reader::state::need_more && taken < bytes.size()) {
      if (reader.wants_continue()) out += "HTTP/1.1 100 Continue\r\n\r\n";
      const auto room = reader.room();
      const auto count = bytes.copy(room.data(), room.size(), taken);
      taken += count;
      reader.commit(count);
      parsed = reader.parse();
    }
    if (parsed == request_reader::state::need_more) return out;
    if (parsed == request_reader::state::refused)
      return out + render(reader.refusal(), {.with_body = true, .keep_alive = false});
    auto incoming = reader.taken();
    incoming.peer_is_loopback = peer_is_loopback;
    // Shared, so that a responder which outlives this call writes to memory that still is.
    const auto answer =
        std::make_shared<response>(text_answer(500, "the handler gave no answer yet\n"));
    routes.dispatch(incoming, responder([answer](response given) { *answer = std::move(given); }));
    out += render(*answer, {.with_body = !reader.is_head(), .keep_alive = reader.keep_alive()});
    if (!reader.keep_alive()) return out;
    reader.next();
  }
}

}  // namespace kvd::http
