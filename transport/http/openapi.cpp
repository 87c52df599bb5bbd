// The OpenAPI document, built from the same routes that are served, so that it cannot drift.

#include <algorithm>
#include <cctype>

#include <boost/json.hpp>

#include "transport/http/http_server.hpp"

namespace kvd::http {

namespace {

namespace json = boost::json;

std::string_view meaning(unsigned status) {
  switch (status) {
  case 200: return "Done.";
  case 401: return "The admin token is missing or wrong.";
  case 403: return "Only direct calls from loopback may do this, as no admin token is configured.";
  case 404: return "There is no such thing; the text names it.";
  case 500: return "kvd failed; the text says how.";
  case 503: return "Not now; the body says why.";
  default: return "See the text.";
  }
}

json::object answer_entry(unsigned status, std::string_view content_type) {
  json::object entry{{"description", meaning(status)}};
  json::object media{
      {"schema",
       json::object{{"type", content_type.starts_with("application/json") ? "object" : "string"}}}};
  entry["content"] = json::object{{content_type, std::move(media)}};
  return entry;
}

json::object operation(const route& described) {
  json::object out{{"summary", described.summary}};
  if (!described.parameters.empty()) {
    json::array parameters;
    for (const auto& parameter : described.parameters)
      parameters.push_back(json::object{{"name", parameter},
                                        {"in", "query"},
                                        {"required", false},
                                        {"schema", json::object{{"type", "string"}}}});
    out["parameters"] = std::move(parameters);
  }
  json::object answers;
  for (const auto& [status, content_type] : described.answers)
    answers[std::to_string(status)] = answer_entry(status, content_type);
  if (described.who == access::destructive) {
    answers["401"] = answer_entry(401, "text/plain");
    answers["403"] = answer_entry(403, "text/plain");
    // The empty requirement says that a call from loopback needs none.
    out["security"] = json::array{json::object{{"admin_token", json::array{}}}, json::object{}};
  }
  out["responses"] = std::move(answers);
  return out;
}

}  // namespace

std::string openapi_document(std::string_view title, const std::vector<route>& routes) {
  json::object paths;
  for (const auto& described : routes) {
    auto method = described.method;
    std::transform(method.begin(), method.end(), method.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    auto& path = paths[described.path];
    if (!path.is_object()) path = json::object{};
    path.as_object()[method] = operation(described);
  }
  json::object scheme{{"type", "http"}, {"scheme", "bearer"}};
  json::object document{
      {"openapi", "3.0.3"},
      {"info", json::object{{"title", title}, {"version", KVD_VERSION}}},
      {"paths", std::move(paths)},
      {"components",
       json::object{{"securitySchemes", json::object{{"admin_token", std::move(scheme)}}}}}};
  return json::serialize(document) + "\n";
}

}  // namespace kvd::http
