// What drafts are worth: the cost of a row, the odds of a token, and who gets how many.
#include <catch2/catch.hpp>
#include <vector>

#include "actors/draft_odds.hpp"
#include "actors/draft_share.hpp"
#include "actors/step_cost.hpp"

namespace troupe::actors {
namespace {

// A machine on which the first row costs 1 ms and every other one `row_us`.
StepCost machine(std::int64_t row_us, double speed = 1) {
    StepCost cost;
    for (int round = 0; round < 200; ++round) {
        for (const std::uint32_t rows : {1u, 2u, 4u, 8u, 16u, 32u}) {
            const auto ns = static_cast<double>(1'000'000 + row_us * 1000 * (rows - 1)) / speed;
            cost.observe(rows, false, static_cast<std::int64_t>(ns));
        }
    }
    return cost;
}

TEST_CASE("the cost of a step's rows is learned, and read between those seen", "[actors][drafts]") {
    const StepCost cost = machine(250);
    REQUIRE(cost.of(8, false) / cost.of(1, false) == Approx(2.75).epsilon(0.02));
    REQUIRE(cost.of(6, false) / cost.of(1, false) == Approx(2.25).epsilon(0.02));
    REQUIRE(cost.of(40, false) / cost.of(1, false) == Approx(10.75).epsilon(0.05));
}

TEST_CASE("a machine that becomes slower does so for all numbers of rows", "[actors][drafts]") {
    StepCost cost = machine(250);
    const double before = cost.of(8, false) / cost.of(1, false);
    for (int i = 0; i < 100; ++i)
        cost.observe(1, false, 3'000'000);
    REQUIRE(cost.of(8, false) / cost.of(1, false) == Approx(before).epsilon(0.2));
}

TEST_CASE("a step that was disturbed does not make drafts look dear for ever", "[actors][drafts]") {
    StepCost cost;
    cost.observe(1, false, 1'000'000);
    cost.observe(4, false, 9'000'000);
    REQUIRE(cost.of(4, false) / cost.of(1, false) > 3);
    for (int i = 0; i < 200; ++i)
        cost.observe(1, false, 1'000'000);
    REQUIRE(cost.of(4, false) / cost.of(1, false) < 1.1);
}

TEST_CASE("before anything is known another row seems cheap", "[actors][drafts]") {
    StepCost cost;
    REQUIRE(cost.of(4, false) == cost.of(1, false));
    cost.observe(1, false, 1'000'000);
    REQUIRE(cost.of(5, false) / cost.of(1, false) == Approx(1.04));
}

TEST_CASE("odds follow what became of drafts, and fade to where they began", "[actors][drafts]") {
    DraftOdds odds;
    const double unknown = odds.of(DraftKind::short_match);
    for (int i = 0; i < 5; ++i)
        odds.learn(DraftKind::short_match, 4, 0);
    REQUIRE(odds.of(DraftKind::short_match) < 0.2);
    REQUIRE(odds.of(DraftKind::long_match) > 0.8);  // knows nothing of the others
    for (int i = 0; i < 400; ++i)
        odds.fade();
    REQUIRE(odds.of(DraftKind::short_match) == Approx(unknown).epsilon(0.01));
    for (int i = 0; i < 20; ++i)
        odds.learn(DraftKind::short_match, 8, 8);
    REQUIRE(odds.of(DraftKind::short_match) > 0.95);
}

TEST_CASE("a row alone gets the number that gives most tokens a second", "[actors][drafts]") {
    const StepCost cost = machine(250);
    DraftShare share;
    std::vector<DraftShare::Row> row{{.odds = 0.9, .most = 15}};
    REQUIRE(share.decide(row, cost, false, 100));
    REQUIRE(row[0].granted >= 4);
    REQUIRE(row[0].granted <= 9);
    row[0] = {.odds = 0.25, .most = 15};  // what a row costs
    REQUIRE(!share.decide(row, cost, false, 100));
    REQUIRE(row[0].granted == 0);
    row[0] = {.odds = 0.99, .most = 3};
    REQUIRE(share.decide(row, cost, false, 100));
    REQUIRE(row[0].granted == 3);
    REQUIRE(share.decide(row, cost, false, 2));
    REQUIRE(row[0].granted == 2);
}

TEST_CASE("beside a row without a draft only what costs nothing is granted", "[actors][drafts]") {
    DraftShare share;
    std::vector<DraftShare::Row> rows{{.odds = 0.95, .most = 15}, {}};
    REQUIRE(!share.decide(rows, machine(250), false, 100));
    REQUIRE(share.decide(rows, machine(1), false, 100));
    REQUIRE(rows[0].granted == 15);
    REQUIRE(rows[1].granted == 0);
}

TEST_CASE("rows that all have drafts share by their odds", "[actors][drafts]") {
    DraftShare share;
    std::vector<DraftShare::Row> rows{{.odds = 0.95, .most = 15}, {.odds = 0.8, .most = 15}};
    REQUIRE(share.decide(rows, machine(100), false, 100));
    REQUIRE(rows[0].granted > rows[1].granted);
    REQUIRE(rows[1].granted > 0);
    // One that gains too little to make up for the other's rows stops both.
    rows = {{.odds = 0.95, .most = 15}, {.odds = 0.1, .most = 15}};
    REQUIRE(!share.decide(rows, machine(250), false, 100));
}

TEST_CASE("what a draft model costs is learned apart", "[actors][drafts]") {
    StepCost cost = machine(10);
    for (int i = 0; i < 100; ++i) {
        cost.observe(1, false, 1'000'000);
        cost.observe(5, true, 3'000'000);
    }
    REQUIRE(cost.of(5, true) / cost.of(1, false) == Approx(3).epsilon(0.1));
    REQUIRE(cost.of(5, false) / cost.of(1, false) == Approx(1.04).epsilon(0.1));
}

}  // namespace
}  // namespace troupe::actors
