// The admin endpoints as a caller sees them, over the same parser and router that sockets use.

#include <doctest/doctest.h>

#include <boost/json.hpp>

#include "actors/http_routes.hpp"
#include "transport/http/byte_exchange.hpp"

using namespace kvd;

namespace {

// Answers from what the test put in.
class scripted_backend final : public server_http_backend {
public:
  health_report health_now{.started = true, .percent_started = 100};
  readiness_report ready_now;
  std::vector<std::string> ids = {"a", "b"};
  bool metrics_enabled = true;
  bool drop_replies = false;
  std::optional<error> failure;
  std::optional<std::string> cleaned_id;

  health_report health() override { return health_now; }
  readiness_report ready() override { return ready_now; }
  std::string status_json() override { return R"({"blocks":1})"; }
  std::string config_json() override { return R"({"addr":"127.0.0.1:50055"})"; }
  std::vector<std::string> instances() override { return ids; }
  std::optional<std::string> metrics_text() override {
    if (!metrics_enabled) return std::nullopt;
    return "# TYPE x gauge\nx 1\n";
  }
  void cleanup_instances(std::optional<std::string> id, instances_reply reply) override {
    cleaned_id = id;
    if (drop_replies) return;
    if (failure) return reply(tl::unexpected(*failure));
    if (id && *id != "a") return reply(fail(errc::instance_missing, "no such instance"));
    reply(instances_cleanup_report{.removed_instances = id ? std::vector{*id} : ids,
                                   .removed_tensors = 7});
  }
  void cleanup_memory(memory_reply reply) override {
    if (drop_replies) return;
    if (failure) return reply(tl::unexpected(*failure));
    reply(memory_cleanup_report{.evicted_blocks = 1,
                                .evicted_bytes = 2,
                                .reclaimed_bytes = 3,
                                .still_referenced_blocks = 4});
  }
};

struct answer {
  int status = 0;
  std::string head, body;
};

struct site {
  scripted_backend backend;
  http::route_table table = *http::route_table::build(server_routes(backend), "token");

  answer ask(std::string_view method, std::string_view target, bool from_loopback) const {
    const auto bytes = http::answer_bytes(
        table, std::string(method) + " " + std::string(target) + " HTTP/1.1\r\nHost: kvd\r\n\r\n",
        from_loopback);
    const auto split = bytes.find("\r\n\r\n");
    REQUIRE(split != std::string::npos);
    return {std::stoi(bytes.substr(9, 3)), bytes.substr(0, split + 2), bytes.substr(split + 4)};
  }
  answer ask(std::string_view method, std::string_view target) const {
    return ask(method, target, true);
  }
};

}  // namespace

TEST_CASE("GET /health says ok once started and how far the start is before") {
  site kvd;
  CHECK(kvd.ask("GET", "/health").body == "ok");
  kvd.backend.health_now = {.started = false, .percent_started = 42};
  const auto starting = kvd.ask("GET", "/health");
  CHECK(starting.status == 200);
  CHECK(starting.body == "starting 42 %");
}

TEST_CASE("GET /ready is 200 only without a reason against it, and names the reasons") {
  site kvd;
  CHECK(kvd.ask("GET", "/ready").status == 200);
  kvd.backend.ready_now.reasons = {"draining", "pool: 42 % claimed"};
  const auto refused = kvd.ask("GET", "/ready");
  CHECK(refused.status == 503);
  CHECK(refused.body == "{\"ready\":false,\"reasons\":[\"draining\",\"pool: 42 % claimed\"]}\n");
}

TEST_CASE("GET /instances lists the ids, whatever bytes are in them") {
  site kvd;
  kvd.backend.ids = {"a", "quote\" and \n"};
  const auto listed = boost::json::parse(kvd.ask("GET", "/instances").body);
  CHECK(listed.at("instances").as_array().at(1).as_string() == "quote\" and \n");
}

TEST_CASE("GET /metrics is Prometheus text, and 404 when it is switched off") {
  site kvd;
  const auto text = kvd.ask("GET", "/metrics");
  CHECK(text.status == 200);
  CHECK(text.head.find("Content-Type: text/plain; version=0.0.4") != std::string::npos);
  kvd.backend.metrics_enabled = false;
  CHECK(kvd.ask("GET", "/metrics").status == 404);
}

TEST_CASE("POST /instances/cleanup removes one or all, and 404 names an unknown one") {
  site kvd;
  CHECK(kvd.ask("POST", "/instances/cleanup").body ==
        "{\"removed_instances\":[\"a\",\"b\"],\"removed_tensors\":7}\n");
  CHECK_FALSE(kvd.backend.cleaned_id);
  CHECK(kvd.ask("POST", "/instances/cleanup?id=a").body ==
        "{\"removed_instances\":[\"a\"],\"removed_tensors\":7}\n");
  const auto unknown = kvd.ask("POST", "/instances/cleanup?id=x%20y");
  CHECK(unknown.status == 404);
  CHECK(unknown.body == "instance x y not found\n");
}

TEST_CASE("POST /instances/cleanup with an empty id is refused and removes nothing") {
  site kvd;
  kvd.backend.cleaned_id = "untouched";
  CHECK(kvd.ask("POST", "/instances/cleanup?id=").status == 400);
  CHECK(kvd.backend.cleaned_id == "untouched");
}

TEST_CASE("POST /cache/memory/cleanup answers the four figures") {
  site kvd;
  CHECK(kvd.ask("POST", "/cache/memory/cleanup").body ==
        "{\"evicted_blocks\":1,\"evicted_bytes\":2,\"reclaimed_bytes\":3,"
        "\"still_referenced_blocks\":4}\n");
}

TEST_CASE("a failed or lost cleanup is an error answer, never silence") {
  site kvd;
  kvd.backend.failure = error{errc::unavailable, "draining"};
  CHECK(kvd.ask("POST", "/cache/memory/cleanup").status == 503);
  CHECK(kvd.ask("POST", "/instances/cleanup").status == 503);
  kvd.backend.drop_replies = true;
  CHECK(kvd.ask("POST", "/cache/memory/cleanup").status == 500);
  CHECK(kvd.ask("POST", "/instances/cleanup").status == 500);
}

TEST_CASE("every operation of openapi.json answers, with a status that it documents") {
  site kvd;
  const auto document = boost::json::parse(kvd.ask("GET", "/openapi.json").body).as_object();
  const auto& paths = document.at("paths").as_object();
  CHECK(paths.size() == 9);
  for (const auto& [path, operations] : paths) {
    for (const auto& [lower_method, operation] : operations.as_object()) {
      std::string method(lower_method);
      for (auto& c : method)
        c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      const auto& documented = operation.as_object().at("responses").as_object();
      for (const bool from_loopback : {true, false}) {
        const auto given = kvd.ask(method, std::string(path), from_loopback);
        CAPTURE(std::string(path));
        CAPTURE(given.status);
        REQUIRE(documented.contains(std::to_string(given.status)));
        const auto& media = documented.at(std::to_string(given.status)).at("content").as_object();
        const std::string type(media.begin()->key());
        CHECK(given.head.find("Content-Type: " + type) != std::string::npos);
      }
    }
  }
}

TEST_CASE("all methods on all paths: undocumented ones never succeed, and no POST from elsewhere") {
  site kvd;
  const auto document = boost::json::parse(kvd.ask("GET", "/openapi.json").body).as_object();
  const auto& paths = document.at("paths").as_object();
  for (const auto& [path, operations] : paths) {
    const auto& known = operations.as_object();
    for (const std::string method :
         {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PURGE"}) {
      std::string lower = method;
      for (auto& c : lower)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      CAPTURE(std::string(path));
      CAPTURE(method);
      const auto elsewhere = kvd.ask(method, std::string(path), false).status;
      if (!known.contains(lower)) CHECK(elsewhere == 405);
      // Whatever is not GET changes something: without the token it stays outside.
      else if (method != "GET")
        CHECK(elsewhere == 401);
      else
        CHECK(elsewhere == 200);
    }
  }
  for (const char* path :
       {"/", "/health/", "/debug", "/instances/cleanup/x", "/metrics2", "/cache"})
    for (const char* method : {"GET", "POST", "DELETE"})
      CHECK(kvd.ask(method, path).status == 404);
}
