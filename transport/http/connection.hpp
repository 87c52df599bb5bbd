#pragma once
// One connection of the server: bytes in, requests to the route table, answers out.
//
//   reading --complete request--> answering --responder--> writing --keep-alive--> reading
//      |                                                      |
//      +--refused (400, 413, 431)----------------------------+--close--> lingering --EOF--> gone
//
// Everything here runs on the server's thread, with callbacks: a slow peer costs a socket and a
// buffer but never a turn. Every state has a deadline; one sweep looks at all of them.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "core/clock.hpp"
#include "transport/http/http_message.hpp"
#include "transport/http/request_reader.hpp"
#include "transport/http/route_table.hpp"

namespace kvd::http {

class connection;

// What the connections share. The server thread owns everything in it but the io_context's queue;
// responders of other threads reach it through a weak_ptr and only post.
struct shared_state {
  explicit shared_state(route_table table) : routes(std::move(table)) {}
  boost::asio::io_context io{1};
  route_table routes;
  const clock* time = nullptr;
  std::unordered_set<std::shared_ptr<connection>> open;
  bool draining = false;

  void forget(const std::shared_ptr<connection>& gone);
};

class connection : public std::enable_shared_from_this<connection> {
public:
  connection(boost::asio::ip::tcp::socket socket, bool peer_is_loopback,
             std::weak_ptr<shared_state> shared);

  void start();
  // Too many connections: says so and goes, without reading.
  void turn_away(std::size_t connections_max);
  // Called by the sweep. A handler that is late is answered for; anything else is cut.
  void check_deadline(time_point now);
  // An idle connection goes now, a busy one after its answer.
  void drain();
  void close();

private:
  enum class state : std::uint8_t { reading, answering, writing, lingering };

  void set_deadline(duration allowed);
  void read();
  void advance();
  void send_continue();
  void dispatch();
  void send(const response& answer, rendering how);
  void read_next();
  void linger();
  void drop_rest();

  boost::asio::ip::tcp::socket socket_;
  const bool peer_is_loopback_;
  const std::weak_ptr<shared_state> shared_;
  request_reader reader_;
  std::string out_;
  std::array<char, 4096> dropped_{};
  time_point deadline_{};
  std::uint64_t ticket_ = 0;  // of the request that is being answered
  state state_ = state::reading;
  bool draining_ = false;
};

}  // namespace kvd::http
