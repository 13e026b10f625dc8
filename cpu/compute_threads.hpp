// The compute threads of the CPU backend. The calling thread (the executor's) is worker 0; the
// others belong to this class. Work is handed out in numbered pieces from one atomic counter:
// whoever is free takes the next, so a thread that the system has put aside holds up one piece at
// most, never its whole share. Nothing may depend on which worker computes a piece.
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

    void run_job(std::uint32_t pieces, PieceFunction function, void* context);
    bool take_piece(std::uint32_t worker);
    void worker_main(std::uint32_t worker);
    [[nodiscard]] bool wait_for_pieces();

    const std::uint32_t workers_;

    // The job. Read without a lock, believed only after the ticket's exchange succeeded: it changes
    // only while no piece is left, and an exchange from "none left" is never tried.
    std::atomic<PieceFunction> function_{nullptr};
    std::atomic<void*> context_{nullptr};
    std::atomic<std::uint32_t> pieces_{0};

    // Number of the job << 32 | pieces not taken yet. The number keeps a worker that slept between
    // two looks from taking a piece of a later job for one of an earlier.
    alignas(64) std::atomic<std::uint64_t> ticket_{0};
    alignas(64) std::atomic<std::uint32_t> done_{0};
    // Changed to wake sleepers: a futex word of its own, as the ticket is too wide for one.
    alignas(64) std::atomic<std::uint32_t> wakes_{0};
    std::atomic<std::uint32_t> sleepers_{0};
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> threads_;
};

}  // namespace troupe::cpu
