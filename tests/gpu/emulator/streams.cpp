// The runtime API of the emulated device: streams, events, graphs, copies. Asynchronous work is a
// queue of operations a stream. They run when the host waits for something, one at a time, from a
// stream drawn by the seed, and only until what the host waits for has happened; some seeds also
// run a little ahead at every call. What the program's own ordering does not promise is therefore
// wrong under some seed.
#include <sys/mman.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <set>
#include <string>

#include <cuda_runtime.h>
#include "tests/gpu/emulator/block.hpp"
#include "tests/gpu/emulator/device_memory.hpp"
#include "tests/gpu/emulator/emulator.hpp"

namespace troupe::emulator {

struct Event {
    std::uint64_t recorded = 0;   // ticket of the last record
    std::uint64_t completed = 0;  // ticket of the last record that has run
};

struct Operation {
    std::function<void()> run;
    Event* wait = nullptr;  // runs only once this has completed `ticket`
    std::uint64_t ticket = 0;
};

struct Graph {
    std::vector<Operation> operations;
    bool valid = true;  // nothing was called that a capture does not allow
};

struct Stream {
    std::deque<Operation> queue;
    std::unique_ptr<Graph> captured;  // not null while operations are recorded, not run
};

namespace {

std::uint64_t mixed(std::uint64_t value) {  // splitmix64
    value += 0x9E3779B97F4A7C15ULL;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
}

class Device {
 public:
    DeviceMemory memory;
    std::set<Stream*> streams;
    std::uint64_t launches = 0;
    std::uint64_t graph_launches = 0;
    std::string fault;
    cudaError_t last_error = cudaSuccess;
    std::uint64_t kernels_to_loss = 0;  // 0: never

    Device() {
        if (const char* text = std::getenv("TROUPE_EMULATOR_LOSE_AFTER"))
            kernels_to_loss = std::strtoull(text, nullptr, 10);
    }
    // Nothing is left but the seed, which goes on.
    void reset() {
        const std::uint64_t seed = seed_, draws = draws_;
        this->~Device();
        new (this) Device();
        kernels_to_loss = 0;
        seed_ = seed;
        draws_ = draws;
    }
    void count_kernel() {
        ++launches;
        if (kernels_to_loss != 0 && --kernels_to_loss == 0)
            fail(cudaErrorLaunchFailure, "the device was lost");
    }

    void set_seed(std::uint64_t seed) {
        seed_ = seed;
        draws_ = 0;
    }
    std::uint64_t random() { return seed_ == 0 ? 0 : mixed(seed_ * 1'000'003 + ++draws_); }

    cudaError_t report(cudaError_t error) {
        if (error != cudaSuccess) last_error = error;
        return error;
    }
    // A fault of device work: every later call fails too.
    void fail(cudaError_t error, std::string what) {
        if (sticky_ != cudaSuccess) return;
        sticky_ = error;
        fault = std::move(what);
    }
    [[nodiscard]] cudaError_t status() { return report(sticky_); }
    // Calls that wait, or that a recorded piece of work could not do, end a capture: an error now,
    // and when it is closed.
    [[nodiscard]] bool spoils_capture() {
        bool any = false;
        for (Stream* stream : streams) {
            if (!stream->captured) continue;
            stream->captured->valid = false;
            any = true;
        }
        return any;
    }

    cudaError_t enqueue(Stream* stream, Operation operation) {
        if (sticky_ != cudaSuccess || stream == nullptr) {
            return report(sticky_ != cudaSuccess ? sticky_ : cudaErrorInvalidValue);
        }
        if (stream->captured) {
            stream->captured->operations.push_back(std::move(operation));
            return cudaSuccess;
        }
        stream->queue.push_back(std::move(operation));
        // A third of the seeds never run ahead, a third now and then, a third mostly.
        if (seed_ % 3 != 0 && random() % 100 < 45 * (seed_ % 3)) {
            return run_until(
                [this, first = true]() mutable { return !std::exchange(first, false); });
        }
        return cudaSuccess;
    }

    // Runs operations until `done()`; an error if none can run before.
    template <class Done>
    cudaError_t run_until(Done done) {
        memory.open();
        while (sticky_ == cudaSuccess && !done()) {
            Stream* const stream = pick();
            if (stream == nullptr) {
                if (!idle()) fail(cudaErrorLaunchFailure, "streams wait for each other for ever");
                break;
            }
            const Operation operation = std::move(stream->queue.front());
            stream->queue.pop_front();
            operation.run();
        }
        if (!memory.margins_intact()) fail(cudaErrorIllegalAddress, "a write past an allocation");
        memory.close();
        return status();
    }
    [[nodiscard]] bool idle() const {
        return std::all_of(streams.begin(), streams.end(),
                           [](const Stream* stream) { return stream->queue.empty(); });
    }

 private:
    Stream* pick() {
        std::vector<Stream*> ready;
        for (Stream* stream : streams) {
            if (stream->queue.empty()) continue;
            const Operation& next = stream->queue.front();
            if (next.wait == nullptr || next.wait->completed >= next.ticket)
                ready.push_back(stream);
        }
        return ready.empty() ? nullptr : ready[random() % ready.size()];
    }

    std::uint64_t seed_ = 0;
    std::uint64_t draws_ = 0;
    cudaError_t sticky_ = cudaSuccess;
};

Device& device() {
    static auto instance = std::make_unique<Device>();
    return *instance;
}

// A parameter that holds the address of host memory: on a card an illegal access. Found by looking
// at every aligned word of it that could be one.
bool holds_host_address(const ParameterBytes& parameter) {
    for (std::size_t at = 0; at + 8 <= parameter.size; at += 8) {
        std::uintptr_t word = 0;
        std::memcpy(&word, static_cast<const std::byte*>(parameter.data) + at, sizeof word);
        const auto* const address = reinterpret_cast<const std::byte*>(word);  // NOLINT
        if (word < 0x5000'0000'0000 || word > 0x7FFF'FFFF'FFFF) continue;
        if (device().memory.is_device_address(address)) continue;
        unsigned char resident = 0;
        if (mincore(reinterpret_cast<void*>(word & ~std::uintptr_t{4095}), 1, &resident) == 0)
            return true;
    }
    return false;
}

bool copy_is_valid(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                   bool pinned) {
    const DeviceMemory& memory = device().memory;
    const auto host = [&](const void* p) {
        return pinned ? memory.is_pinned(p, bytes) : !memory.is_device_address(p);
    };
    const bool to_device = kind != cudaMemcpyDeviceToHost;
    const bool from_device = kind != cudaMemcpyHostToDevice;
    return (to_device ? memory.holds(to, bytes) : host(to)) &&
           (from_device ? memory.holds(from, bytes) : host(from));
}

}  // namespace

void set_seed(std::uint64_t seed) {
    device().set_seed(seed);
}

const std::string& fault() {
    return device().fault;
}

void lose_device_after(std::uint64_t kernels) {
    device().kernels_to_loss = kernels;
}

std::uint64_t launches() {
    return device().launches;
}

std::uint64_t graph_launches() {
    return device().graph_launches;
}

void reset_device() {
    device().~Device();
    new (&device()) Device();
}

cudaError_t enqueue_kernel(const cudaLaunchConfig_t& config, std::vector<ParameterBytes> parameters,
                           std::function<void()> thread_body) {
    const bool host_address = std::any_of(parameters.begin(), parameters.end(), holds_host_address);
    const dim3 grid = config.gridDim;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65'535 || grid.z > 65'535)
        return device().report(cudaErrorInvalidValue);
    return device().enqueue(config.stream, {[config, host_address, body = std::move(thread_body)] {
                                device().count_kernel();
                                const std::string what =
                                    host_address
                                        ? "a kernel's parameter is the address of host memory"
                                        : run_kernel(config, body, device().random());
                                if (!what.empty()) device().fail(cudaErrorIllegalAddress, what);
                            }});
}

}  // namespace troupe::emulator

using namespace troupe::emulator;  // NOLINT: below are CUDA's own names

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorIllegalAddress:
            return "cudaErrorIllegalAddress";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated:
            return "cudaErrorStreamCaptureInvalidated";
    }
    return "unknown";
}

const char* cudaGetErrorString(cudaError_t error) {
    const bool device_fault = error != cudaSuccess && !fault().empty();
    return device_fault ? fault().c_str() : cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() {
    return std::exchange(device().last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {"emulated device", DeviceMemory::kTotalBytes, 8, 0, 4, 1 << 20};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = device().memory.free_bytes();
    *total_bytes = DeviceMemory::kTotalBytes;
    return device().status();
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    if (device().spoils_capture()) return device().report(cudaErrorStreamCaptureUnsupported);
    *pointer = device().memory.allocate(bytes);
    return device().report(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// Waits for all work, as on a card.
cudaError_t cudaFree(void* pointer) {
    (void)cudaDeviceSynchronize();
    if (pointer == nullptr || device().memory.release(pointer)) return device().status();
    return device().report(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
    if (device().spoils_capture()) return device().report(cudaErrorStreamCaptureUnsupported);
    *pointer = device().memory.allocate_pinned(bytes);
    return device().report(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFreeHost(void* pointer) {
    (void)cudaDeviceSynchronize();
    if (pointer == nullptr || device().memory.release_pinned(pointer)) return device().status();
    return device().report(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (device().spoils_capture()) return device().report(cudaErrorStreamCaptureUnsupported);
    if (!copy_is_valid(to, from, bytes, kind, false)) return device().report(cudaErrorInvalidValue);
    device().memory.open();
    std::memcpy(to, from, bytes);
    device().memory.close();
    return device().status();
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    if (device().spoils_capture()) return device().report(cudaErrorStreamCaptureUnsupported);
    if (!device().memory.holds(to, bytes)) return device().report(cudaErrorInvalidValue);
    device().memory.open();
    std::memset(to, value, bytes);
    device().memory.close();
    return device().status();
}

// A copy from memory that is not pinned would be no asynchronous copy: refused here.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (!copy_is_valid(to, from, bytes, kind, true)) return device().report(cudaErrorInvalidValue);
    return device().enqueue(stream, {[=] { std::memcpy(to, from, bytes); }});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    if (device().status() != cudaSuccess) return device().status();
    *stream = *device().streams.insert(new Stream).first;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)cudaStreamSynchronize(stream);
    device().streams.erase(stream);
    delete stream;
    return device().status();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream->captured && device().spoils_capture())
        return device().report(cudaErrorStreamCaptureUnsupported);
    return device().run_until([stream] { return stream->queue.empty(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (stream->captured) return device().report(cudaErrorStreamCaptureUnsupported);
    return device().enqueue(stream, {[] {}, event, event->recorded});
}

cudaError_t cudaDeviceSynchronize() {
    if (device().spoils_capture()) return device().report(cudaErrorStreamCaptureUnsupported);
    return device().run_until([] { return device().idle(); });
}

cudaError_t cudaDeviceReset() {
    if (!device().streams.empty()) return device().report(cudaErrorInvalidValue);
    device().reset();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    if (device().status() != cudaSuccess) return device().status();
    *event = new Event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)cudaDeviceSynchronize();
    delete event;
    return device().status();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (stream->captured) return device().report(cudaErrorStreamCaptureUnsupported);
    const std::uint64_t ticket = ++event->recorded;
    return device().enqueue(stream, {[event, ticket] { event->completed = ticket; }});
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return device().run_until([event] { return event->completed >= event->recorded; });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stream->captured) return device().report(cudaErrorStreamCaptureUnsupported);
    stream->captured = std::make_unique<Graph>();
    return device().status();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const std::unique_ptr<Graph> captured = std::move(stream->captured);
    *graph = captured && captured->valid ? new Graph(*captured) : nullptr;
    if (!captured) return device().report(cudaErrorInvalidValue);
    return device().report(captured->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
    *executable = new Graph(*graph);
    return device().status();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    ++device().graph_launches;
    for (const Operation& operation : executable->operations) {
        if (cudaError_t error = device().enqueue(stream, operation); error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return device().status();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return device().status();
}
