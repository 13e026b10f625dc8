#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "cpu/compute_threads.hpp"

using troupe::cpu::ComputeThreads;

TEST_CASE("every piece of a job is run exactly once before run returns", "[cpu][threads]") {
    for (const std::uint32_t workers : {1U, 2U, 5U}) {
        ComputeThreads threads(workers);
        std::vector<int> times(97);
        // Plain ints: under the thread sanitizer this also shows that run() orders jobs.
        for (int job = 1; job <= 2000; ++job) {
            const auto pieces = static_cast<std::uint32_t>(job % 97 + 1);
            threads.run(pieces, [&](std::uint32_t piece, std::uint32_t worker) {
                times[piece] += worker < workers ? 1 : 1000;
            });
            const auto expected = [&](std::uint32_t piece) {
                int count = 0;
                for (int j = 1; j <= job; ++j)
                    count += piece < static_cast<std::uint32_t>(j % 97 + 1);
                return count;
            };
            if (job % 400 != 0) continue;
            for (std::uint32_t piece = 0; piece < 97; ++piece) {
                REQUIRE(times[piece] == expected(piece));
            }
        }
    }
}

TEST_CASE("a job of no pieces returns at once", "[cpu][threads]") {
    ComputeThreads threads(2);
    threads.run(0, [](std::uint32_t, std::uint32_t) { FAIL("there is no piece to run"); });
    SUCCEED();
}

TEST_CASE("workers that fell asleep take part in a later job", "[cpu][threads]") {
    ComputeThreads threads(2);
    threads.run(2, [](std::uint32_t, std::uint32_t) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // Two pieces that wait for each other can only end if two workers run them.
    std::atomic<int> arrived{0};
    std::vector<std::uint32_t> by(2);
    threads.run(2, [&](std::uint32_t piece, std::uint32_t worker) {
        by[piece] = worker;
        arrived.fetch_add(1);
        while (arrived.load() < 2)
            std::this_thread::yield();
    });
    std::sort(by.begin(), by.end());
    REQUIRE(by == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("the pieces that a stalled worker does not take are done by the others",
          "[cpu][threads]") {
    ComputeThreads threads(2);
    std::atomic<bool> release{false};
    std::atomic<std::uint32_t> others_done{0};
    std::atomic<bool> stalled{false};
    constexpr std::uint32_t kPieces = 64;
    threads.run(kPieces, [&](std::uint32_t, std::uint32_t) {
        if (!stalled.exchange(true)) {
            while (!release.load())
                std::this_thread::yield();
            return;
        }
        if (others_done.fetch_add(1) + 2 == kPieces) release.store(true);
    });
    REQUIRE(others_done.load() == kPieces - 1);
}

TEST_CASE("each worker goes through a stretch of the pieces, others take from its end",
          "[cpu][threads]") {
    constexpr std::uint32_t kPieces = 40, kHalf = kPieces / 2;
    ComputeThreads threads(2);
    for (const std::uint32_t slow : {0U, 1U}) {
        std::vector<std::vector<std::uint32_t>> taken(2);  // [workers]
        std::atomic<bool> both{false};
        std::atomic<std::uint32_t> by_fast{0};
        threads.run(kPieces, [&](std::uint32_t piece, std::uint32_t worker) {
            taken[worker].push_back(piece);
            if (worker == slow) {
                both.store(true);
                while (by_fast.load() < kPieces - 1)
                    std::this_thread::yield();
                return;
            }
            while (!both.load())
                std::this_thread::yield();
            ++by_fast;
        });
        // Own ones in order; then the other's, from its last one back to its second.
        const std::uint32_t own = slow == 0 ? kHalf : 0, others = kHalf - own;
        std::vector<std::uint32_t> expected(kHalf);
        std::iota(expected.begin(), expected.end(), own);
        for (std::uint32_t i = kHalf - 1; i >= 1; --i)
            expected.push_back(others + i);
        REQUIRE(taken[slow] == std::vector<std::uint32_t>{others});
        REQUIRE(taken[1 - slow] == expected);
    }
}

TEST_CASE("more workers than cores still finish many short jobs", "[cpu][threads]") {
    ComputeThreads threads(std::thread::hardware_concurrency() + 3);
    std::vector<std::uint64_t> sums(threads.workers());
    for (std::uint32_t job = 0; job < 500; ++job) {
        threads.run(20, [&](std::uint32_t piece, std::uint32_t worker) { sums[worker] += piece; });
    }
    REQUIRE(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}) == 500U * 190U);
}
