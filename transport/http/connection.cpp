#include "transport/http/connection.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/log.hpp"

namespace kvd::http {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

void shared_state::forget(const std::shared_ptr<connection>& gone) {
  open.erase(gone);
  if (draining && open.empty()) io.stop();
}

connection::connection(tcp::socket socket, bool peer_is_loopback,
                       std::weak_ptr<shared_state> shared)
    : socket_(std::move(socket)), peer_is_loopback_(peer_is_loopback), shared_(std::move(shared)) {}

void connection::start() {
  set_deadline(limits::http_request_time_max);
  read();
}

void connection::turn_away(std::size_t connections_max) {
  send(text_answer(503, fmt::format("kvd serves at most {} HTTP connections\n", connections_max)),
       {.with_body = true, .keep_alive = false});
}

void connection::check_deadline(time_point now) {
  if (now < deadline_) return;
  if (state_ != state::answering) return close();
  ++ticket_;  // the late answer must not follow this one
  log::warn("http", "no answer from the handler of {} {}", reader_.taken().method,
            reader_.taken().path);
  send(text_answer(504, "the handler did not answer in time\n"),
       {.with_body = !reader_.is_head(), .keep_alive = false});
}

void connection::drain() {
  draining_ = true;
  if (state_ == state::reading && !reader_.started()) close();
}

void connection::close() {
  error_code ignored;
  socket_.close(ignored);
  if (auto shared = shared_.lock()) shared->forget(shared_from_this());
}

void connection::set_deadline(duration allowed) {
  if (auto shared = shared_.lock()) deadline_ = shared->time->now() + allowed;
}

void connection::read() {
  state_ = state::reading;
  const auto room = reader_.room();
  const auto on_bytes = [self = shared_from_this()](error_code ec, std::size_t count) {
    if (ec) return self->close();
    // The request's time runs from its first byte and is not renewed by the next ones.
    if (!self->reader_.started()) self->set_deadline(limits::http_request_time_max);
    self->reader_.commit(count);
    self->advance();
  };
  socket_.async_read_some(asio::buffer(room.data(), room.size()), on_bytes);
}

void connection::advance() {
  switch (reader_.parse()) {
  case request_reader::state::need_more:
    if (reader_.wants_continue()) return send_continue();
    return read();
  case request_reader::state::refused:
    return send(reader_.refusal(), {.with_body = true, .keep_alive = false});
  case request_reader::state::complete: return dispatch();
  }
}

void connection::send_continue() {
  out_ = "HTTP/1.1 100 Continue\r\n\r\n";
  const auto on_sent = [self = shared_from_this()](error_code ec, std::size_t) {
    if (ec) return self->close();
    self->read();
  };
  asio::async_write(socket_, asio::buffer(out_), on_sent);
}

void connection::dispatch() {
  const auto shared = shared_.lock();
  if (!shared) return;
  state_ = state::answering;
  set_deadline(limits::http_answer_time_max);
  auto incoming = reader_.taken();
  incoming.peer_is_loopback = peer_is_loopback_;
  // The answer may come from any thread, after the connection or the server is gone, or twice if
  // the deadline answered first; the ticket and the weak pointers make each of these harmless.
  const auto answer_later = [weak_shared = shared_, weak_self = weak_from_this(),
                             ticket = ++ticket_](response answer) {
    const auto alive = weak_shared.lock();
    if (!alive) return;
    asio::post(alive->io, [weak_self, ticket, answer = std::move(answer)] {
      const auto self = weak_self.lock();
      if (!self || self->ticket_ != ticket || self->state_ != state::answering) return;
      self->send(answer,
                 {.with_body = !self->reader_.is_head(), .keep_alive = self->reader_.keep_alive()});
    });
  };
  shared->routes.dispatch(incoming, responder(answer_later));
}

void connection::send(const response& answer, rendering how) {
  state_ = state::writing;
  set_deadline(limits::http_write_time_max);
  how.keep_alive = how.keep_alive && !draining_;
  out_ = render(answer, how);
  const auto on_sent = [self = shared_from_this(), stay = how.keep_alive](error_code ec,
                                                                          std::size_t) {
    if (ec) return self->close();
    if (stay && !self->draining_) return self->read_next();
    self->linger();
  };
  asio::async_write(socket_, asio::buffer(out_), on_sent);
}

void connection::read_next() {
  reader_.next();
  set_deadline(limits::http_idle_time_max);
  // A pipelined request is here already, and no read would announce it.
  if (!reader_.started()) return read();
  state_ = state::reading;
  set_deadline(limits::http_request_time_max);
  advance();
}

// Closing with unread bytes would reset the connection under the answer, so the peer's rest is read
// and dropped first, for a short while.
void connection::linger() {
  state_ = state::lingering;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  set_deadline(limits::http_linger_time_max);
  drop_rest();
}

void connection::drop_rest() {
  const auto on_bytes = [self = shared_from_this()](error_code ec, std::size_t) {
    if (ec) return self->close();
    self->drop_rest();
  };
  socket_.async_read_some(asio::buffer(dropped_), on_bytes);
}

}  // namespace kvd::http
