// A step of the scheduler takes no memory. Counted by an operator new of this program's own, which
// sanitizers have, too: so not under them.
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

TEST_CASE("a step of the scheduler takes no memory", "[actors][scheduler]") {
    const std::size_t at_first = allocations;
    ::operator delete(::operator new(8));
    REQUIRE(allocations == at_first + 1);  // they are counted
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
        // But for a request's tokens and pages, which double what they have room for.
        CHECK(taken <= 2 * running);
    }
}

}  // namespace troupe

#endif
