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
    const std::string text =
        Metrics().text({.engine = &stats, .tokens_of_keys = {{"alice", 0}, {"batch", 0}}});
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
    stats.kv_pages_total.set(8);
    stats.kv_pages_leased.set(2);
    stats.steps_compute_ns_total.add(3'000'000'000);
    stats.steps_sample_ns_total.add(500'000'000);
    stats.steps_deliver_ns_total.add(1'500'000'000);
    const std::string text = metrics.text(
        {.engine = &stats, .unread_bytes = 300, .resumes = 5, .tokens_of_keys = {{"a \"b\"", 40}}});
    for (const char* line : {"troupe_connections 1\n", "troupe_slow_clients_closed_total 1\n",
                             "troupe_generation_tokens_total 7\n", "troupe_stalls_total 4\n",
                             "troupe_requests_finished_total{reason=\"cancelled\"} 3\n",
                             "troupe_requests_rejected_total{reason=\"overloaded\"} 2\n",
                             "troupe_inter_token_seconds_bucket{le=\"0.02\"} 1\n",
                             "troupe_inter_token_seconds_bucket{le=\"40\"} 1\n",
                             "troupe_inter_token_seconds_bucket{le=\"+Inf\"} 2\n",
                             "troupe_inter_token_seconds_count 2\n", "troupe_unread_bytes 300\n",
                             "troupe_resumes_total 5\n", "troupe_kv_cache_usage_perc 0.25\n",
                             "troupe_step_part_seconds_total{part=\"forward\"} 2.5\n",
                             "troupe_step_part_seconds_total{part=\"sample\"} 0.5\n",
                             "troupe_step_part_seconds_total{part=\"deliver\"} 1.5\n",
                             "troupe_key_tokens_in_flight{key=\"a \\\"b\\\"\"} 40\n"})
        CHECK_THAT(text, Catch::Contains(line));
    const std::string without_engine = Metrics().text({});
    CHECK(without_engine.find("troupe_requests") == std::string::npos);
    CHECK(without_engine.find("{key=") == std::string::npos);
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
