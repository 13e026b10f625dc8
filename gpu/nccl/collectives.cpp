// By NCCL, a communicator a card. Nothing is summed here: an all-reduce adds in an order that may
// depend on how much there is to add.
#include "gpu/collectives.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <utility>

#include "model/backend.hpp"

namespace troupe::gpu {
namespace {

void check_nccl(ncclResult_t result, const char* call) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw model::BackendError(fmt::format("{} from {}", ncclGetErrorString(result), call));
}

class NcclCollectives final : public Collectives {
 public:
    explicit NcclCollectives(std::vector<ncclComm_t> communicators)
        : communicators_(std::move(communicators)) {}
    ~NcclCollectives() override { NcclCollectives::abort(); }

    void all_gather(std::span<const RankBuffer<float>> buffers, std::size_t count) override {
        for_each_rank(buffers, [count](std::size_t rank, float* data, auto... on) {
            return ncclAllGather(data + rank * count, data, count, ncclFloat32, on...);
        });
    }
    void broadcast(std::span<const RankBuffer<std::int32_t>> buffers, std::size_t count) override {
        for_each_rank(buffers, [count](std::size_t, std::int32_t* data, auto... on) {
            return ncclBroadcast(data, data, count, ncclInt32, 0, on...);
        });
    }

    void check() const override {
        for (const ncclComm_t communicator : communicators_) {
            ncclResult_t error = ncclSuccess;
            check_nccl(ncclCommGetAsyncError(communicator, &error), "ncclCommGetAsyncError");
            check_nccl(error, "an exchange between cards");
        }
    }

    // Not ncclCommDestroy, which waits for exchanges: one that a lost card is missing from would
    // never end.
    void abort() override {
        for (const ncclComm_t communicator : std::exchange(communicators_, {}))
            (void)ncclCommAbort(communicator);
    }

 private:
    // One group, as one thread calls for all ranks.
    template <class T, class Call>
    void for_each_rank(std::span<const RankBuffer<T>> buffers, Call call) {
        if (communicators_.size() != buffers.size())
            throw model::BackendError("an exchange between cards after one that failed");
        check_nccl(ncclGroupStart(), "ncclGroupStart");
        ncclResult_t first = ncclSuccess;
        for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
            const ncclResult_t result =
                call(rank, buffers[rank].data, communicators_[rank], buffers[rank].stream->get());
            if (first == ncclSuccess) first = result;
        }
        const ncclResult_t end = ncclGroupEnd();  // whatever came before, or the group stays open
        check_nccl(first, "an exchange between cards");
        check_nccl(end, "ncclGroupEnd");
    }

    std::vector<ncclComm_t> communicators_;  // [ranks]; none after abort()
};

}  // namespace

Result<std::unique_ptr<Collectives>> make_collectives(const std::vector<int>& cards) {
    std::vector<ncclComm_t> communicators(cards.size());
    const ncclResult_t result =
        ncclCommInitAll(communicators.data(), static_cast<int>(cards.size()), cards.data());
    if (result != ncclSuccess) {
        return Error{ErrorKind::unsupported,
                     fmt::format("{} cards cannot talk to each other ({} from ncclCommInitAll): "
                                 "leave --gpus out, or see what NCCL_DEBUG=INFO says",
                                 cards.size(), ncclGetErrorString(result))};
    }
    return std::make_unique<NcclCollectives>(std::move(communicators));
}

}  // namespace troupe::gpu
