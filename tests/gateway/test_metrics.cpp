// The names, types and help of /metrics are a promise to those who have built dashboards on them.
#include "gateway/metrics.hpp"

#include <boost/json/parse.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

using namespace troupe;
using namespace troupe::gateway;

namespace {

std::string file(const char* path) {
    std::ifstream in(std::string(TROUPE_SOURCE_DIR) + "/" + path, std::ios::binary);
    REQUIRE(in);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The names that stand in an expression: letters, digits and underscores after "troupe_".
void collect_names(std::string_view text, std::set<std::string>& names) {
    for (auto at = text.find("troupe_"); at != std::string_view::npos;
         at = text.find("troupe_", at + 1)) {
        const auto end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at);
        names.emplace(text.substr(at, end - at));
    }
}

}  // namespace

TEST_CASE("/metrics keeps its names, types and help", "[gateway][metrics]") {
    const actors::EngineStats stats(2);
    const std::string text = Metrics().text(&stats);
    // What is new belongs into the file; what is gone breaks somebody's dashboard.
    CHECK(text == file("tests/data/metrics.txt"));
}

TEST_CASE("Numbers of /metrics are those of the engine", "[gateway][metrics]") {
    actors::EngineStats stats(2);
    stats.generation_tokens_total.add(7);
    stats.finished_total[static_cast<std::size_t>(actors::FinishReason::cancelled)].add(3);
    stats.rejected_total[0].add(2);
    stats.stalls_total.add(4);
    stats.inter_token.observe(std::chrono::milliseconds(15));
    stats.inter_token.observe(std::chrono::seconds(60));
    Metrics metrics;
    metrics.connection_opened();
    metrics.slow_client_closed();
    const std::string text = metrics.text(&stats);
    for (const char* line : {"troupe_connections 1\n", "troupe_slow_clients_closed_total 1\n",
                             "troupe_generation_tokens_total 7\n", "troupe_stalls_total 4\n",
                             "troupe_requests_finished_total{reason=\"cancelled\"} 3\n",
                             "troupe_requests_rejected_total{reason=\"overloaded\"} 2\n",
                             "troupe_inter_token_seconds_bucket{le=\"0.02\"} 1\n",
                             "troupe_inter_token_seconds_bucket{le=\"10\"} 1\n",
                             "troupe_inter_token_seconds_bucket{le=\"+Inf\"} 2\n",
                             "troupe_inter_token_seconds_count 2\n"})
        CHECK_THAT(text, Catch::Contains(line));
    CHECK(Metrics().text(nullptr).find("troupe_requests") == std::string::npos);
}

TEST_CASE("The dashboard shows numbers that there are", "[gateway][metrics]") {
    const std::string dashboard = file("docs/grafana.json");
    CHECK_NOTHROW(boost::json::parse(dashboard));
    std::set<std::string> shown, known;
    collect_names(dashboard, shown);
    collect_names(file("tests/data/metrics.txt"), known);
    CHECK(shown.size() > 15);
    for (const std::string& name : shown) {
        CAPTURE(name);
        CHECK(known.count(name) == 1);
    }
}
