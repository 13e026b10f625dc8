// What the ranks of a divided model tell each other: parts of sums, and draws. Every call puts work
// on all ranks' streams and returns; a rank goes on when all have come. Belongs to the executor's
// thread, which drives all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/device_memory.hpp"
#include "runtime/base/result.hpp"

namespace troupe::gpu {

// A rank's side of an exchange: its buffer, on its card, and the stream that the exchange is on.
template <class T>
struct RankBuffer {
    T* data = nullptr;
    const Stream* stream = nullptr;
};

class Collectives {
 public:
    Collectives() = default;
    Collectives(const Collectives&) = delete;
    Collectives& operator=(const Collectives&) = delete;
    virtual ~Collectives() = default;

    // Each rank's buffer is [ranks][count], of which it has filled its own part. Throws
    // BackendError, as all of this does.
    virtual void all_gather(std::span<const RankBuffer<float>> buffers, std::size_t count) = 0;
    // [count], which the first rank has filled.
    virtual void broadcast(std::span<const RankBuffer<std::int32_t>> buffers,
                           std::size_t count) = 0;
    // Throws where an exchange has failed.
    virtual void check() const = 0;
    // Ends what is under way, though ranks may be missing; nothing may be exchanged afterwards.
    virtual void abort() = 0;
};

// Between these cards. Error: unsupported where this build has no NCCL, or NCCL finds no way.
[[nodiscard]] Result<std::unique_ptr<Collectives>> make_collectives(const std::vector<int>& cards);

}  // namespace troupe::gpu
