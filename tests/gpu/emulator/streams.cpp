// The runtime API of the emulated machine: devices, memory, streams, events, graphs, copies.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include <cuda_runtime.h>
#include "tests/gpu/emulator/block.hpp"
#include "tests/gpu/emulator/machine.hpp"

namespace troupe::emulator {
namespace {

// A parameter that holds the address of host memory: on a card an illegal access. Found by looking
// at every aligned word of it that could be one.
bool holds_host_address(const ParameterBytes& parameter) {
    for (std::size_t at = 0; at + 8 <= parameter.size; at += 8) {
        std::uintptr_t word = 0;
        std::memcpy(&word, static_cast<const std::byte*>(parameter.data) + at, sizeof word);
        const auto* const address = reinterpret_cast<const std::byte*>(word);  // NOLINT
        if (word < 0x5000'0000'0000 || word > 0x7FFF'FFFF'FFFF) continue;
        if (machine().owner(address) != nullptr) continue;
        unsigned char resident = 0;
        if (mincore(reinterpret_cast<void*>(word & ~std::uintptr_t{4095}), 1, &resident) == 0)
            return true;
    }
    return false;
}

bool copy_is_valid(DeviceMemory& memory, const void* to, const void* from, std::size_t bytes,
                   cudaMemcpyKind kind, bool pinned) {
    const auto host = [&](const void* p) {
        return pinned ? machine().pinned.holds(p, bytes) : machine().owner(p) == nullptr;
    };
    const bool to_device = kind != cudaMemcpyDeviceToHost;
    const bool from_device = kind != cudaMemcpyHostToDevice;
    return (to_device ? memory.holds(to, bytes) : host(to)) &&
           (from_device ? memory.holds(from, bytes) : host(from));
}

// At once, on the device whose memory it is.
cudaError_t write_now(const void* device_address, bool valid, const std::function<void()>& write) {
    if (machine().spoils_capture()) return machine().report(cudaErrorStreamCaptureUnsupported);
    Device* const device = machine().owner(device_address);
    if (device == nullptr || !valid) return machine().report(cudaErrorInvalidValue);
    device->memory.open();
    write();
    device->memory.close();
    return machine().report(device->error);
}

}  // namespace

cudaError_t enqueue_kernel(const void* kernel, const cudaLaunchConfig_t& config,
                           std::vector<ParameterBytes> parameters,
                           std::function<void()> thread_body) {
    const bool host_address = std::any_of(parameters.begin(), parameters.end(), holds_host_address);
    const dim3 grid = config.gridDim;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65'535 || grid.z > 65'535)
        return machine().report(cudaErrorInvalidValue);
    const int device = config.stream->device;
    if (device != current_device()) return machine().report(cudaErrorInvalidResourceHandle);
    const auto& asked = machine().device(device).shared_bytes;
    const auto more = asked.find(kernel);
    if (config.dynamicSmemBytes > (more != asked.end() ? more->second : kSharedBytesFree))
        return machine().report(cudaErrorInvalidValue);
    const auto run = [config, host_address, device, body = std::move(thread_body)] {
        machine().count_kernel(device);
        const std::string what = host_address ? "a kernel's parameter is the address of host memory"
                                              : run_kernel(config, body, machine().random());
        if (!what.empty()) machine().fail(device, cudaErrorIllegalAddress, what);
    };
    return machine().enqueue(config.stream, {run, {}});
}

}  // namespace troupe::emulator

using namespace troupe::emulator;  // NOLINT: below are CUDA's own names

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorInvalidResourceHandle:
            return "cudaErrorInvalidResourceHandle";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
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
    const std::string& fault = machine().fault;
    return error != cudaSuccess && !fault.empty() ? fault.c_str() : cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() {
    return std::exchange(machine().last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = machine().count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= machine().count()) return machine().report(cudaErrorInvalidDevice);
    current_device() = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device < 0 || device >= machine().count()) return machine().report(cudaErrorInvalidDevice);
    *properties = {
        "emulated device", DeviceMemory::kTotalBytes, machine().capability, 0, 4, 1 << 20};
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<std::size_t>(value) > kSharedBytesMax) {
        return machine().report(cudaErrorInvalidValue);
    }
    machine().current().shared_bytes[kernel] = static_cast<std::size_t>(value);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = machine().current().memory.free_bytes();
    *total_bytes = DeviceMemory::kTotalBytes;
    return machine().status(current_device());
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    if (machine().spoils_capture()) return machine().report(cudaErrorStreamCaptureUnsupported);
    *pointer = machine().current().memory.allocate(bytes);
    return machine().report(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// Waits for all work of the device, as on a card.
cudaError_t cudaFree(void* pointer) {
    if (pointer == nullptr) return cudaDeviceSynchronize();
    for (int index = 0; index < machine().count(); ++index) {
        Device& device = machine().device(index);
        if (!device.memory.is_device_address(pointer)) continue;
        (void)machine().run_until(index, [index] { return machine().idle(index); });
        return machine().report(device.memory.release(pointer) ? device.error
                                                               : cudaErrorInvalidValue);
    }
    return machine().report(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
    if (machine().spoils_capture()) return machine().report(cudaErrorStreamCaptureUnsupported);
    *pointer = machine().pinned.allocate(bytes);
    return machine().report(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFreeHost(void* pointer) {
    for (int index = 0; index < machine().count(); ++index)
        (void)machine().run_until(index, [index] { return machine().idle(index); });
    if (pointer == nullptr || machine().pinned.release(pointer))
        return machine().status(current_device());
    return machine().report(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const void* const on_device = kind == cudaMemcpyDeviceToHost ? from : to;
    Device* const device = machine().owner(on_device);
    const bool valid =
        device != nullptr && copy_is_valid(device->memory, to, from, bytes, kind, false);
    return write_now(on_device, valid, [=] { std::memcpy(to, from, bytes); });
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    Device* const device = machine().owner(to);
    return write_now(to, device != nullptr && device->memory.holds(to, bytes),
                     [=] { std::memset(to, value, bytes); });
}

// A copy from memory that is not pinned would be no asynchronous copy, one from a device to another
// would want both to allow it: refused here.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (!copy_is_valid(machine().device(stream->device).memory, to, from, bytes, kind, true))
        return machine().report(cudaErrorInvalidValue);
    return machine().enqueue(stream, {[=] { std::memcpy(to, from, bytes); }, {}});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    const int device = current_device();
    if (machine().status(device) != cudaSuccess) return machine().status(device);
    *stream = *machine().device(device).streams.insert(new Stream{device, {}, {}}).first;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const int device = stream->device;
    (void)cudaStreamSynchronize(stream);
    machine().device(device).streams.erase(stream);
    delete stream;
    return machine().status(device);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream->captured && machine().spoils_capture())
        return machine().report(cudaErrorStreamCaptureUnsupported);
    return machine().run_until(stream->device, [stream] { return stream->queue.empty(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (stream->captured) return machine().report(cudaErrorStreamCaptureUnsupported);
    return machine().enqueue(
        stream, {[] {}, [event, ticket = event->recorded] { return event->completed >= ticket; }});
}

cudaError_t cudaDeviceSynchronize() {
    if (machine().spoils_capture()) return machine().report(cudaErrorStreamCaptureUnsupported);
    const int device = current_device();
    return machine().run_until(device, [device] { return machine().idle(device); });
}

cudaError_t cudaDeviceReset() {
    if (!machine().current().streams.empty()) return machine().report(cudaErrorInvalidValue);
    machine().replace(current_device());
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    const int device = current_device();
    if (machine().status(device) != cudaSuccess) return machine().status(device);
    *event = new Event{.device = device, .timed = (flags & cudaEventDisableTiming) == 0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const int device = event->device;
    for (int index = 0; index < machine().count(); ++index)  // streams of others may wait for it
        (void)machine().run_until(index, [index] { return machine().idle(index); });
    delete event;
    return machine().status(device);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (stream->captured) return machine().report(cudaErrorStreamCaptureUnsupported);
    if (event->device != stream->device) return machine().report(cudaErrorInvalidResourceHandle);
    const std::uint64_t ticket = ++event->recorded;
    const auto reach = [event, ticket] {
        event->completed = ticket;
        event->reached = std::chrono::steady_clock::now();
    };
    return machine().enqueue(stream, {reach, {}});
}

// By the host's clock: when the emulated machine came to them.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    for (const Event* event : {begin, end}) {
        if (!event->timed || event->recorded == 0)
            return machine().report(cudaErrorInvalidResourceHandle);
        if (event->completed < event->recorded) return machine().report(cudaErrorNotReady);
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->reached - begin->reached).count();
    return machine().status(begin->device);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return machine().run_until(event->device,
                               [event] { return event->completed >= event->recorded; });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const auto reached = [event] { return event->completed >= event->recorded; };
    if (!reached()) machine().run_some(event->device, reached);
    if (machine().status(event->device) != cudaSuccess) return machine().status(event->device);
    return reached() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stream->captured) return machine().report(cudaErrorStreamCaptureUnsupported);
    stream->captured = std::make_unique<Graph>();
    return machine().status(stream->device);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = nullptr;
    if (!stream->captured) return machine().report(cudaErrorInvalidValue);
    *graph = machine().end_capture(*stream).release();
    return machine().report(*graph != nullptr ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
    if (machine().spoils_capture()) return machine().report(cudaErrorStreamCaptureUnsupported);
    const cudaError_t status = machine().status(current_device());
    if (status == cudaSuccess) *executable = new Graph(*graph);
    return status;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
    executable->uploaded_to = stream->device;
    return machine().status(stream->device);
}

// Without an upload the first launch makes room on the device, for which a driver may wait until
// nothing runs.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    if (std::exchange(executable->uploaded_to, stream->device) != stream->device) {
        if (const cudaError_t error = machine().run_all(); error != cudaSuccess) return error;
    }
    ++machine().graph_launches;
    for (const Operation& operation : executable->operations) {
        if (cudaError_t error = machine().enqueue(stream, operation); error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return machine().status(current_device());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return machine().status(current_device());
}
