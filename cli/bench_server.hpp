#pragma once
// The server that a bench command talks to: one that runs already, or a child process of this very
// executable on free ports of loopback, so that a measurement needs no set-up.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace kvd {

struct server_addresses {
  std::string grpc;
  std::string http;
};

// The addresses in a log line that holds `grpc=HOST:PORT http=HOST:PORT`; empty ones otherwise.
server_addresses addresses_in(std::string_view log_line);

// A number of a running server's /status, by JSON pointer; 0 when it does not say.
std::uint64_t status_number(const std::string& http, std::string_view pointer, const clock& time);

// The flags of a server with such a pool and, unless the path is empty, an SSD tier that holds
// `ssd_bytes` of records.
std::vector<std::string> server_flags(std::uint64_t pool_bytes, const std::string& ssd_path,
                                      std::uint64_t ssd_bytes);

struct child_options {
  std::string executable;              // empty: this one
  std::vector<std::string> arguments;  // behind the role; the addresses are added
  std::string role = "server";
};

// A `kvd server`, or another role, that lives as long as this object, or as this process if that is
// killed.
class child_server {
public:
  // Returns once the server is ready. errc::unavailable quotes the last lines that the server
  // wrote.
  static result<std::unique_ptr<child_server>> start(const child_options& options,
                                                     const clock& time);
  // Asks it to drain, waits, and kills it if it does not.
  ~child_server();
  child_server(const child_server&) = delete;
  child_server& operator=(const child_server&) = delete;

  const server_addresses& addresses() const noexcept { return addresses_; }
  long pid() const noexcept;

private:
  struct process;
  explicit child_server(std::unique_ptr<process> running);
  std::unique_ptr<process> process_;
  server_addresses addresses_;
};

}  // namespace kvd
