// The compute threads of the CPU backend. The calling thread (the executor's) is worker 0; the
// others belong to this class. Work is cut into numbered pieces; each worker has a stretch of them,
// which it goes through in order, so that what lies together in memory is read by one core and
// asked for ahead. Whoever has done with its own takes the last piece of whoever has most left: a
// thread that the system has put aside holds up one piece at most, never its whole share. Nothing
// may depend on which worker computes a piece.
//
// There are no barriers: run() returns when every piece is done, whether or not every worker came.
// Idle workers spin for some microseconds and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace troupe::cpu {

class ComputeThreads {
 public:
    // Starts workers - 1 threads; `workers` >= 1. Throws std::system_error where the system
    // refuses.
    explicit ComputeThreads(std::uint32_t workers);
    ~ComputeThreads();
    ComputeThreads(const ComputeThreads&) = delete;
    ComputeThreads& operator=(const ComputeThreads&) = delete;

    [[nodiscard]] std::uint32_t workers() const { return workers_; }

    // Calls function(piece, worker) once for each piece in [0, pieces) and returns when all are
    // done. `worker` < workers() tells which scratch memory to use. The function must not throw.
    template <class Function>
    void run(std::uint32_t pieces, Function&& function) {
        if (pieces <= 1 || workers_ == 1) {
            for (std::uint32_t piece = 0; piece < pieces; ++piece)
                function(piece, 0U);
            return;
        }
        using Plain = std::remove_reference_t<Function>;
        run_job(
            pieces,
            [](void* context, std::uint32_t piece, std::uint32_t worker) noexcept {
                (*static_cast<Plain*>(context))(piece, worker);
            },
            const_cast<void*>(static_cast<const void*>(&function)));
    }

 private:
    using PieceFunction = void (*)(void* context, std::uint32_t piece,
                                   std::uint32_t worker) noexcept;

    // The pieces of a job that a worker has left: its number << 32 | begin << 16 | end. The number
    // keeps a thread that slept between two looks from taking a piece of a later job for one of an
    // earlier.
    struct alignas(64) Stretch {
        std::atomic<std::uint64_t> left{0};
    };
    enum class End : std::uint8_t { first, last };

    void run_job(std::uint32_t pieces, PieceFunction function, void* context);
    std::uint32_t do_pieces(std::uint32_t worker);
    bool do_piece(Stretch& of, End end, std::uint32_t worker);
    [[nodiscard]] Stretch* longest();
    void worker_main(std::uint32_t worker);
    [[nodiscard]] bool wait_for_job(std::uint32_t seen);

    const std::uint32_t workers_;

    // The job. Read without a lock, believed only after an exchange of a stretch succeeded: it
    // changes only while no piece is left, and an exchange from "none left" is never tried.
    std::atomic<PieceFunction> function_{nullptr};
    std::atomic<void*> context_{nullptr};
    std::vector<Stretch> stretches_;  // [workers]

    alignas(64) std::atomic<std::uint32_t> job_{0};  // its number, when its stretches are there
    alignas(64) std::atomic<std::uint32_t> done_{0};
    // Changed to wake sleepers.
    alignas(64) std::atomic<std::uint32_t> wakes_{0};
    std::atomic<std::uint32_t> sleepers_{0};
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> threads_;
};

}  // namespace troupe::cpu
