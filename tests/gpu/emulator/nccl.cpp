#include <nccl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/emulator/machine.hpp"

using namespace troupe::emulator;  // NOLINT: below are NCCL's own names

namespace {

constexpr std::size_t kElementBytes = 4;  // of both types that there are

// What a rank asks for; all must ask for the same.
struct Request {
    bool gathers = false;  // or else broadcasts
    std::size_t count = 0;
    ncclDataType_t type = ncclFloat32;
    int root = 0;
    friend bool operator==(const Request&, const Request&) = default;
};

struct Exchange {
    Request request;                            // of the first that came
    std::size_t called = 0;                     // for by so many ranks
    std::size_t arrived = 0;                    // on so many streams
    std::vector<std::vector<std::byte>> parts;  // [ranks]
};

// The ranks that exchange with each other.
struct Clique {
    std::size_t ranks = 0;
    std::map<std::uint64_t, std::shared_ptr<Exchange>> exchanges;  // by number
    bool aborted = false;
};

unsigned group_depth = 0;
std::vector<std::function<ncclResult_t()>> grouped;

}  // namespace

struct ncclComm {
    std::shared_ptr<Clique> clique;
    std::size_t rank = 0;
    int device = 0;
    std::uint64_t calls = 0;
};

namespace {

// On the rank's stream: the part is brought.
void arrive(const ncclComm& comm, Exchange& exchange, const Request& request, const void* from) {
    if (comm.clique->aborted) return;
    if (exchange.arrived == 0) {
        exchange.request = request;
        exchange.parts.resize(comm.clique->ranks);
    } else if (exchange.request != request) {
        machine().fail(comm.device, cudaErrorLaunchFailure,
                       "rank " + std::to_string(comm.rank) + " brings " +
                           std::to_string(request.count) + " values to an exchange of " +
                           std::to_string(exchange.request.count) +
                           ", or wants another kind of it");
        return;
    }
    ++exchange.arrived;
    if (request.gathers || static_cast<std::size_t>(request.root) == comm.rank) {
        const auto* const bytes = static_cast<const std::byte*>(from);
        exchange.parts[comm.rank].assign(bytes, bytes + request.count * kElementBytes);
    }
}

// Once all have come: the parts are there.
void complete(const ncclComm& comm, const Exchange& exchange, void* to) {
    if (comm.clique->aborted) return;
    auto* at = static_cast<std::byte*>(to);
    for (const std::vector<std::byte>& part : exchange.parts)
        at = std::copy(part.begin(), part.end(), at);
}

ncclResult_t start(ncclComm& comm, const Request& request, const void* from, void* to,
                   cudaStream_t stream) {
    const DeviceMemory& memory = machine().device(comm.device).memory;
    const std::size_t bytes = request.count * kElementBytes;
    const std::size_t received = request.gathers ? comm.clique->ranks * bytes : bytes;
    if (comm.clique->aborted || stream->captured) return ncclInvalidUsage;
    if (stream->device != comm.device || !memory.holds(from, bytes) || !memory.holds(to, received))
        return ncclInvalidArgument;
    const std::uint64_t number = comm.calls++;
    std::shared_ptr<Exchange> exchange = comm.clique->exchanges[number];
    if (!exchange) exchange = comm.clique->exchanges[number] = std::make_shared<Exchange>();
    if (++exchange->called == comm.clique->ranks) comm.clique->exchanges.erase(number);
    const auto rank = comm;  // the communicator may be gone when its stream gets there
    const auto bring = [rank, exchange, request, from] { arrive(rank, *exchange, request, from); };
    const auto take = [rank, exchange, to] { complete(rank, *exchange, to); };
    const auto all_came = [rank, exchange] {
        return exchange->arrived == rank.clique->ranks || rank.clique->aborted;
    };
    if (machine().enqueue(stream, {bring, {}}) != cudaSuccess) return ncclUnhandledCudaError;
    if (machine().enqueue(stream, {take, all_came}) != cudaSuccess) return ncclUnhandledCudaError;
    return ncclSuccess;
}

// A lone call would wait for ranks that this very thread has yet to call for.
ncclResult_t start_in_group(ncclComm_t comm, const Request& request, const void* from, void* to,
                            cudaStream_t stream) {
    if (group_depth == 0) return ncclInvalidUsage;
    grouped.emplace_back([=] { return start(*comm, request, from, to, stream); });
    return ncclSuccess;
}

}  // namespace

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
    const auto clique = std::make_shared<Clique>();
    clique->ranks = static_cast<std::size_t>(count);
    for (int rank = 0; rank < count; ++rank) {
        const bool twice = std::find(devices, devices + rank, devices[rank]) != devices + rank;
        if (devices[rank] >= machine().count() || twice) return ncclInvalidUsage;
        comms[rank] = new ncclComm{clique, static_cast<std::size_t>(rank), devices[rank], 0};
    }
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->clique->aborted = true;
    return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
    *error = ncclSuccess;  // of a lost device the other ranks are not told
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclInProgress:
            return "NCCL operation in progress";
    }
    return "unknown result code";
}

ncclResult_t ncclGroupStart() {
    ++group_depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) return ncclInvalidUsage;
    if (--group_depth > 0) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    for (const auto& call : std::exchange(grouped, {})) {
        const ncclResult_t one = call();
        if (result == ncclSuccess) result = one;
    }
    return result;
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return start_in_group(comm, {true, count, type, 0}, from, to, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    return start_in_group(comm, {false, count, type, root}, from, to, stream);
}
