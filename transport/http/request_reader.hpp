#pragma once
// Bytes in, requests out: the only part of the server that parses, and the only one behind Beast.
//
// Not thread safe: its connection's. Call order: room(), commit(), parse(); after complete, take
// the request and call next(). Bounded by limits.hpp: header, body, and the buffer by their sum.

#include <cstdint>
#include <memory>
#include <span>

#include "transport/http/http_server.hpp"

namespace kvd::http {

class request_reader {
public:
  enum class state : std::uint8_t { need_more, complete, refused };

  request_reader();
  ~request_reader();

  // Room for the next bytes; commit() says how many came.
  std::span<char> room();
  void commit(std::size_t count);
  // Whether a part of the next request is here.
  bool started() const noexcept;

  // Parses what is there.
  state parse();
  // True once for a header that asks before it sends its body (Expect: 100-continue).
  bool wants_continue();

  // After complete.
  const request& taken() const noexcept;
  bool keep_alive() const noexcept;
  bool is_head() const noexcept;
  // After refused: the answer to give before closing, as nothing behind the fault can be trusted.
  const response& refusal() const noexcept;

  void next();

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

}  // namespace kvd::http
