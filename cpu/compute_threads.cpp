#include "cpu/compute_threads.hpp"

#include <pthread.h>

#include <chrono>
#include <cstdio>

#include "runtime/base/assert.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::cpu {
namespace {

// Longer than the serial work between two jobs of a step, far shorter than a scheduler's time
// slice.
constexpr std::chrono::microseconds kSpinTime{40};
constexpr int kLooksPerClockRead = 64;

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// Looks at `condition` until it holds or the spin time is over; returns whether it holds.
template <class Condition>
bool spin_until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
    do {
        for (int look = 0; look < kLooksPerClockRead; ++look) {
            if (condition()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < deadline);
    return condition();
}

constexpr std::uint64_t kPiecesMask = 0xFFFFFFFFULL;

}  // namespace

ComputeThreads::ComputeThreads(std::uint32_t workers) : workers_(workers) {
    TROUPE_ASSERT(workers >= 1);
    threads_.reserve(workers - 1);
    try {
        for (std::uint32_t worker = 1; worker < workers; ++worker) {
            threads_.emplace_back([this, worker] { worker_main(worker); });
        }
    } catch (...) {
        stopping_.store(true);
        wakes_.fetch_add(1);
        wakes_.notify_all();
        for (std::thread& thread : threads_)
            thread.join();
        throw;
    }
}

ComputeThreads::~ComputeThreads() {
    stopping_.store(true);
    wakes_.fetch_add(1);
    wakes_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
}

void ComputeThreads::run_job(std::uint32_t pieces, PieceFunction function, void* context) {
    function_.store(function, std::memory_order_relaxed);
    context_.store(context, std::memory_order_relaxed);
    pieces_.store(pieces, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const std::uint64_t job = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    // Sequentially consistent with sleepers_: either we see the sleeper or it sees the pieces.
    ticket_.store(job << 32 | pieces, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
        wakes_.fetch_add(1, std::memory_order_release);
        wakes_.notify_all();
    }
    while (take_piece(0)) {
    }
    const auto all_done = [&] { return done_.load(std::memory_order_acquire) == pieces; };
    if (spin_until(all_done)) return;
    // Someone was put aside in the middle of a piece: leave it this core.
    for (std::uint32_t done = done_.load(std::memory_order_acquire); done != pieces;
         done = done_.load(std::memory_order_acquire)) {
        done_.wait(done, std::memory_order_acquire);
    }
}

// Takes and runs one piece; false where none is left.
bool ComputeThreads::take_piece(std::uint32_t worker) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while ((ticket & kPiecesMask) != 0) {
        const PieceFunction function = function_.load(std::memory_order_relaxed);
        void* const context = context_.load(std::memory_order_relaxed);
        const std::uint32_t pieces = pieces_.load(std::memory_order_relaxed);
        if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
            continue;
        }
        function(context, pieces - static_cast<std::uint32_t>(ticket & kPiecesMask), worker);
        done_.fetch_add(1, std::memory_order_release);
        // Waiters see every change; only the last one matters, but which that is may not be known
        // here any more once the count is visible, and a notify without waiters costs one load.
        done_.notify_one();
        return true;
    }
    return false;
}

void ComputeThreads::worker_main(std::uint32_t worker) {
    char name[16];
    std::snprintf(name, sizeof name, "compute-%u", worker);
    pthread_setname_np(pthread_self(), name);
    while (wait_for_pieces()) {
        while (take_piece(worker)) {
        }
    }
}

// Returns true when there may be a piece to take, false when it is time to end.
bool ComputeThreads::wait_for_pieces() {
    const auto something = [&] {
        return (ticket_.load(std::memory_order_seq_cst) & kPiecesMask) != 0 ||
               stopping_.load(std::memory_order_relaxed);
    };
    if (!spin_until(something)) {
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        const std::uint32_t wakes = wakes_.load(std::memory_order_seq_cst);
        if (!something()) wakes_.wait(wakes, std::memory_order_acquire);
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    return !stopping_.load(std::memory_order_relaxed);
}

}  // namespace troupe::cpu
