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
#elif defined(__aarch64__)
    __asm__ volatile("isb");  // takes a moment, which "yield" does not on most processors
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

constexpr std::uint32_t kPiecesMax = 0xFFFF;  // of a worker

std::uint32_t begin_of(std::uint64_t left) {
    return left >> 16 & 0xFFFF;
}
std::uint32_t end_of(std::uint64_t left) {
    return left & 0xFFFF;
}
std::uint32_t count_of(std::uint64_t left) {
    return end_of(left) - begin_of(left);
}

}  // namespace

ComputeThreads::ComputeThreads(std::uint32_t workers) : workers_(workers), stretches_(workers) {
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
    TROUPE_ASSERT(pieces <= kPiecesMax);
    function_.store(function, std::memory_order_relaxed);
    context_.store(context, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const std::uint32_t job = job_.load(std::memory_order_relaxed) + 1;
    for (std::uint32_t worker = 0; worker < workers_; ++worker) {
        const std::uint64_t begin = std::uint64_t{pieces} * worker / workers_;
        const std::uint64_t end = std::uint64_t{pieces} * (worker + 1) / workers_;
        stretches_[worker].left.store(std::uint64_t{job} << 32 | begin << 16 | end,
                                      std::memory_order_release);
    }
    // Sequentially consistent with sleepers_: either we see the sleeper or it sees the job.
    job_.store(job, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
        wakes_.fetch_add(1, std::memory_order_release);
        wakes_.notify_all();
    }
    const std::uint32_t by_others = pieces - do_pieces(0);
    const auto all_done = [&] { return done_.load(std::memory_order_acquire) == by_others; };
    if (spin_until(all_done)) return;
    // Someone was put aside in the middle of a piece: leave it this core.
    for (std::uint32_t done = done_.load(std::memory_order_acquire); done != by_others;
         done = done_.load(std::memory_order_acquire)) {
        done_.wait(done, std::memory_order_acquire);
    }
}

// As many as there are, own ones first; returns their number.
std::uint32_t ComputeThreads::do_pieces(std::uint32_t worker) {
    std::uint32_t done = 0;
    while (do_piece(stretches_[worker], End::first, worker))
        ++done;
    while (Stretch* const other = longest()) {
        if (do_piece(*other, End::last, worker)) ++done;
    }
    return done;
}

// Takes and runs a piece of a stretch; false where none is left.
bool ComputeThreads::do_piece(Stretch& of, End end, std::uint32_t worker) {
    std::uint64_t left = of.left.load(std::memory_order_acquire);
    while (count_of(left) != 0) {
        const PieceFunction function = function_.load(std::memory_order_relaxed);
        void* const context = context_.load(std::memory_order_relaxed);
        const std::uint64_t rest = end == End::first ? left + (1U << 16) : left - 1;
        if (!of.left.compare_exchange_weak(left, rest, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
            continue;
        }
        function(context, end == End::first ? begin_of(left) : end_of(left) - 1, worker);
        return true;
    }
    return false;
}

// Of those that have pieces left, or null.
ComputeThreads::Stretch* ComputeThreads::longest() {
    Stretch* found = nullptr;
    std::uint32_t most = 0;
    for (Stretch& stretch : stretches_) {
        const std::uint32_t count = count_of(stretch.left.load(std::memory_order_acquire));
        if (count > most) {
            most = count;
            found = &stretch;
        }
    }
    return found;
}

void ComputeThreads::worker_main(std::uint32_t worker) {
    char name[16];
    std::snprintf(name, sizeof name, "compute-%u", worker);
    pthread_setname_np(pthread_self(), name);
    for (std::uint32_t seen = 0; wait_for_job(seen);) {
        seen = job_.load(std::memory_order_acquire);
        const std::uint32_t done = do_pieces(worker);
        if (done == 0) continue;
        done_.fetch_add(done, std::memory_order_release);
        // Waiters see every change; only the last one matters, but which that is may not be known
        // here any more once the count is visible, and a notify without waiters costs one load.
        done_.notify_one();
    }
}

// Returns true when there is a job after the one that was seen, false when it is time to end.
bool ComputeThreads::wait_for_job(std::uint32_t seen) {
    const auto something = [&] {
        return job_.load(std::memory_order_seq_cst) != seen ||
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
