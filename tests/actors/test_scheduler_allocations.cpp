// A step of the scheduler takes memory for what it hands over and for nothing else. Counted by an
// operator new of this program's own, which sanitizers have, too: so not under them.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "tools/simulation/scheduler_loop.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

std::size_t allocations = 0;  // of the whole program, which has one thread while it counts

void* allocate(std::size_t bytes) {
    ++allocations;
    void* memory = std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
    return allocate(bytes);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace troupe {

TEST_CASE("a step of the scheduler takes memory for its delivery only", "[actors][scheduler]") {
    for (const std::uint32_t running : {1U, 32U, 256U}) {
        constexpr std::size_t steps = 1000;
        simulation::SchedulerLoop loop(running, 2 * steps);
        const auto run = [&] {
            std::size_t taken = 0;
            for (std::size_t i = 0; i < steps; ++i) {
                const std::size_t before = allocations;
                loop.step();
                taken += allocations - before;
                loop.compute();
            }
            return taken;
        };
        (void)run();  // vectors reach their sizes
        const std::size_t taken = run();
        CAPTURE(running);
        CHECK(taken >= 2 * steps);  // the events and the tokens of each; if not, nothing is counted
        // A request's tokens and pages double what they have room for.
        CHECK(taken <= 2 * steps + 2 * running);
    }
}

}  // namespace troupe

#endif
