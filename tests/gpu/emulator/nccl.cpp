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
    std::uint64_t recording = 0;  // of which group of calls it is replayed; 0: it is none's replay
    friend bool operator==(const Request&, const Request&) = default;
};

struct Exchange {
    Request request;                            // of the first that came
    std::size_t arrived = 0;                    // on so many streams
    std::vector<std::vector<std::byte>> parts;  // [ranks]
};

// How far a rank's stream is. The exchange that it comes to as its n-th is the others' n-th.
struct Progress {
    std::uint64_t exchanges = 0;
    std::shared_ptr<Exchange> under_way;
};

// The ranks that exchange with each other.
struct Clique {
    std::vector<Progress> ranks;
    std::map<std::uint64_t, std::shared_ptr<Exchange>> exchanges;  // by number, until all have come
    bool aborted = false;
};

// What a rank's stream knows of it: its communicator may be gone by then.
struct Member {
    std::shared_ptr<Clique> clique;
    std::size_t rank = 0;
    int device = 0;
    [[nodiscard]] Progress& progress() const { return clique->ranks[rank]; }
};

struct Call {
    ncclComm_t comm = nullptr;
    Request request;
    const void* from = nullptr;
    void* to = nullptr;
    cudaStream_t stream = nullptr;
};

unsigned group_depth = 0;
std::vector<Call> grouped;
std::uint64_t recordings = 0;

}  // namespace

struct ncclComm {
    Member member;
    // As often as there are graphs with exchanges of this communicator, and once more.
    std::shared_ptr<void> in_graphs = std::make_shared<char>();
};

namespace {

void fail(const Member& member, const std::string& what) {
    machine().fail(member.device, cudaErrorLaunchFailure,
                   "rank " + std::to_string(member.rank) + " " + what);
}

// On the rank's stream: the part is brought.
void arrive(const Member& member, const Request& request, const void* from) {
    Clique& clique = *member.clique;
    if (clique.aborted) return;
    Progress& progress = member.progress();
    if (progress.under_way) return fail(member, "comes to an exchange while it is in another");
    const std::uint64_t number = progress.exchanges++;
    if (!clique.exchanges.contains(number)) {
        clique.exchanges[number] = std::make_shared<Exchange>(
            Exchange{request, 0, std::vector<std::vector<std::byte>>(clique.ranks.size())});
    }
    const std::shared_ptr<Exchange> exchange = clique.exchanges[number];
    if (exchange->request.recording != request.recording)
        return fail(member, "comes with another graph than the others, or one of them with none");
    if (exchange->request != request) {
        return fail(member,
                    "brings " + std::to_string(request.count) + " values to an exchange of " +
                        std::to_string(exchange->request.count) + ", or wants another kind of it");
    }
    progress.under_way = exchange;
    if (++exchange->arrived == clique.ranks.size()) clique.exchanges.erase(number);
    if (request.gathers || static_cast<std::size_t>(request.root) == member.rank) {
        const auto* const bytes = static_cast<const std::byte*>(from);
        exchange->parts[member.rank].assign(bytes, bytes + request.count * kElementBytes);
    }
}

bool all_came(const Member& member) {
    const Clique& clique = *member.clique;
    const Progress& progress = member.progress();
    return clique.aborted ||
           (progress.under_way && progress.under_way->arrived == clique.ranks.size());
}

// Once all have come: the parts are there.
void complete(const Member& member, void* to) {
    if (member.clique->aborted) return;
    const std::shared_ptr<Exchange> exchange = std::move(member.progress().under_way);
    auto* at = static_cast<std::byte*>(to);
    for (const std::vector<std::byte>& part : exchange->parts)
        at = std::copy(part.begin(), part.end(), at);
}

ncclResult_t start(const Call& call) {
    const Member member = call.comm->member;
    const DeviceMemory& memory = machine().device(member.device).memory;
    const std::size_t bytes = call.request.count * kElementBytes;
    const std::size_t received = call.request.gathers ? member.clique->ranks.size() * bytes : bytes;
    if (member.clique->aborted) return ncclInvalidUsage;
    if (call.stream->device != member.device || !memory.holds(call.from, bytes) ||
        !memory.holds(call.to, received))
        return ncclInvalidArgument;
    if (call.stream->captured) call.stream->captured->held.push_back(call.comm->in_graphs);
    const auto bring = [=] { arrive(member, call.request, call.from); };
    const auto take = [=] { complete(member, call.to); };
    if (machine().enqueue(call.stream, {bring, {}}) != cudaSuccess) return ncclUnhandledCudaError;
    if (machine().enqueue(call.stream, {take, [=] { return all_came(member); }}) != cudaSuccess)
        return ncclUnhandledCudaError;
    return ncclSuccess;
}

// A lone call would wait for ranks that this very thread has yet to call for.
ncclResult_t start_in_group(const Call& call) {
    if (group_depth == 0) return ncclInvalidUsage;
    grouped.push_back(call);
    return ncclSuccess;
}

// NCCL polls for that, whatever it has been told to abort.
void wait_for_graphs(const ncclComm& comm) {
    if (comm.in_graphs.use_count() > 1) {
        machine().hang(comm.member.device,
                       "a communicator ends before the graphs that hold its exchanges");
    }
}

}  // namespace

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
    const auto clique = std::make_shared<Clique>();
    clique->ranks.resize(static_cast<std::size_t>(count));
    for (int rank = 0; rank < count; ++rank) {
        const bool twice = std::find(devices, devices + rank, devices[rank]) != devices + rank;
        if (devices[rank] >= machine().count() || twice) return ncclInvalidUsage;
        comms[rank] = new ncclComm{{clique, static_cast<std::size_t>(rank), devices[rank]}};
    }
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    wait_for_graphs(*comm);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->member.clique->aborted = true;
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
    std::vector<Call> calls = std::exchange(grouped, {});
    const auto captured = std::ranges::count_if(
        calls, [](const Call& call) { return call.stream->captured != nullptr; });
    if (captured != 0 && captured != std::ssize(calls)) return ncclInvalidUsage;
    const std::uint64_t recording = captured != 0 ? ++recordings : 0;
    ncclResult_t result = ncclSuccess;
    for (Call& call : calls) {
        call.request.recording = recording;
        const ncclResult_t one = start(call);
        if (result == ncclSuccess) result = one;
    }
    return result;
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return start_in_group({comm, {true, count, type, 0}, from, to, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    return start_in_group({comm, {false, count, type, root}, from, to, stream});
}
