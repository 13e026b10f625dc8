#include <catch2/catch.hpp>

#include "runtime/stop_flag.hpp"

using namespace troupe::runtime;

TEST_CASE("the first reason to stop stays", "[runtime][stop_flag]") {
    const SharedStopFlag flag = StopFlag::make();
    CHECK_FALSE(flag->requested());
    CHECK(flag->reason() == StopReason::none);
    CHECK(flag->request(StopReason::cancelled));
    CHECK_FALSE(flag->request(StopReason::shutdown));
    CHECK(flag->requested());
    CHECK(flag->reason() == StopReason::cancelled);
}
