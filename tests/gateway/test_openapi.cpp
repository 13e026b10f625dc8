// docs/openapi.json names exactly the routes that there are.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "gateway/routes.hpp"

using namespace troupe::gateway;
namespace json = boost::json;

TEST_CASE("The OpenAPI description and the table of routes agree", "[gateway][routes]") {
    std::ifstream file(TROUPE_SOURCE_DIR "/docs/openapi.json");
    std::stringstream text;
    text << file.rdbuf();
    const json::value spec = json::parse(text.str());
    std::set<std::string> described;
    for (const auto& path : spec.at("paths").as_object()) {
        for (const auto& operation : path.value().as_object()) {
            std::string method(operation.key());
            for (char& c : method)
                c = static_cast<char>(std::toupper(c));
            described.insert(method + " " + std::string(path.key()));
        }
    }
    std::set<std::string> served;
    for (const auto& [method, path] : all_routes()) {
        std::string name(path);
        if (name.ends_with('*')) name.replace(name.size() - 1, 1, "{file}");
        served.insert(std::string(method) + " " + name);
    }
    CHECK(described == served);
}
