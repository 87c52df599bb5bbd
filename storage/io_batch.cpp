#include "storage/io_batch.hpp"

#include <system_error>

#include <fmt/format.h>

namespace kvd {

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

void io_batch::start(file_io::kind what, std::uint64_t offset, std::span<std::byte> bytes) {
  auto& made = requests_.emplace_back();
  made.batch = this;
  made.piece = {bytes.data(), bytes.size()};
  made.io.what = what;
  made.io.offset = offset;
  if (what != file_io::kind::sync) made.io.pieces = {&made.piece, 1};
  made.io.owner = &made;
  made.io.on_done = [](file_io& io, int error) noexcept {
    auto& done = *static_cast<request*>(io.owner);
    done.error = error;
    --done.batch->running_;
  };
  ++running_;
  file_.submit(made.io);
}

void io_batch::read(std::uint64_t offset, std::span<std::byte> into) {
  bytes_read_ += into.size();
  start(file_io::kind::read, offset, into);
}

void io_batch::write(std::uint64_t offset, std::span<std::byte> from) {
  start(file_io::kind::write, offset, from);
}

void io_batch::sync() {
  start(file_io::kind::sync, 0, {});
}

result<void> io_batch::wait(std::string_view what) {
  while (running_ > 0)
    file_.poll(std::chrono::milliseconds(1000));
  result<void> outcome;
  for (const auto& done : requests_) {
    if (done.error == 0) continue;
    outcome = fail(errc::io,
                   fmt::format("{}, at byte {}: {}", what, done.io.offset, errno_text(done.error)));
    break;
  }
  requests_.clear();
  return outcome;
}

std::vector<int> io_batch::wait_each() {
  while (running_ > 0)
    file_.poll(std::chrono::milliseconds(1000));
  std::vector<int> errors;
  for (const auto& done : requests_)
    errors.push_back(done.error);
  requests_.clear();
  return errors;
}

}  // namespace kvd
