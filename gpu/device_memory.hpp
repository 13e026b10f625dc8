// Owners of what the CUDA runtime hands out: device memory, pinned host memory, streams, events,
// graphs. They belong to the executor's thread. Whatever fails throws BackendError, except in
// destructors, where there is nobody left to tell.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "gpu/cuda_check.hpp"

namespace troupe::gpu {

template <auto Release>
struct Releaser {
    template <class T>
    void operator()(T* pointer) const {
        (void)Release(pointer);
    }
};

// Room for `count` values in device memory; host code must not follow the pointer.
template <class T>
class DeviceBuffer {
 public:
    DeviceBuffer() = default;
    explicit DeviceBuffer(std::size_t count) : count_(count) {
        if (count == 0) return;
        void* pointer = nullptr;
        CUDA_CHECK(cudaMalloc(&pointer, bytes()));
        memory_.reset(static_cast<T*>(pointer));
    }
    // Synchronous; for what is made once.
    [[nodiscard]] static DeviceBuffer upload(std::span<const T> values) {
        DeviceBuffer buffer(values.size());
        if (values.empty()) return buffer;
        CUDA_CHECK(
            cudaMemcpy(buffer.data(), values.data(), buffer.bytes(), cudaMemcpyHostToDevice));
        return buffer;
    }
    [[nodiscard]] static DeviceBuffer upload(const std::vector<T>& values) {
        return upload(std::span<const T>(values));
    }
    [[nodiscard]] std::vector<T> download() const {
        std::vector<T> values(count_);
        CUDA_CHECK(cudaMemcpy(values.data(), data(), bytes(), cudaMemcpyDeviceToHost));
        return values;
    }
    void clear() { CUDA_CHECK(cudaMemset(data(), 0, bytes())); }

    [[nodiscard]] T* data() const { return memory_.get(); }
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }

 private:
    std::size_t count_ = 0;
    std::unique_ptr<T, Releaser<cudaFree>> memory_;
};

// Host memory that copies can run from and to while the host does something else.
template <class T>
class PinnedBuffer {
 public:
    PinnedBuffer() = default;
    explicit PinnedBuffer(std::size_t count) : count_(count) {
        void* pointer = nullptr;
        CUDA_CHECK(cudaMallocHost(&pointer, count * sizeof(T)));
        memory_.reset(static_cast<T*>(pointer));
    }
    [[nodiscard]] T* data() const { return memory_.get(); }
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] T& operator[](std::size_t index) const { return memory_.get()[index]; }

 private:
    std::size_t count_ = 0;
    std::unique_ptr<T, Releaser<cudaFreeHost>> memory_;
};

class Event;

class Stream {
 public:
    Stream() {
        cudaStream_t stream = nullptr;
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        stream_.reset(stream);
    }
    [[nodiscard]] cudaStream_t get() const { return stream_.get(); }
    void synchronise() const { CUDA_CHECK(cudaStreamSynchronize(get())); }
    // What follows on this stream runs after the event's last record.
    void wait(const Event& event) const;

 private:
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Releaser<cudaStreamDestroy>> stream_;
};

// Notes when it is reached, which takes the card a little longer.
struct Timed {};

class Event {
 public:
    Event() : Event(cudaEventDisableTiming) {}
    explicit Event(Timed) : Event(cudaEventDefault) {}
    [[nodiscard]] cudaEvent_t get() const { return event_.get(); }
    void record(const Stream& stream) const { CUDA_CHECK(cudaEventRecord(get(), stream.get())); }
    void synchronise() const { CUDA_CHECK(cudaEventSynchronize(get())); }
    // Whether all is done that stood before its last record.
    [[nodiscard]] bool reached() const {
        const cudaError_t state = cudaEventQuery(get());
        if (state != cudaSuccess && state != cudaErrorNotReady)
            throw_cuda_error(state, "cudaEventQuery", __FILE__, __LINE__);
        return state == cudaSuccess;
    }
    // By the card's clock; both are timed and have been reached.
    [[nodiscard]] double seconds_since(const Event& earlier) const {
        float milliseconds = 0;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.get(), get()));
        return static_cast<double>(milliseconds) * 1e-3;
    }

 private:
    explicit Event(unsigned flags) {
        cudaEvent_t event = nullptr;
        CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
        event_.reset(event);
    }

    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Releaser<cudaEventDestroy>> event_;
};

inline void Stream::wait(const Event& event) const {
    CUDA_CHECK(cudaStreamWaitEvent(get(), event.get(), 0));
}

using RecordedGraph =
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Releaser<cudaGraphDestroy>>;

// What this thread puts on a stream is recorded from here on, and not run. Where end() is not
// reached, it is forgotten, and the stream is as before.
class Capture {
 public:
    explicit Capture(const Stream& stream) {
        CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
        stream_.reset(stream.get());
    }
    [[nodiscard]] RecordedGraph end() {
        cudaGraph_t graph = nullptr;
        CUDA_CHECK(cudaStreamEndCapture(stream_.release(), &graph));
        return RecordedGraph(graph);
    }

 private:
    static void forget(cudaStream_t stream) {
        cudaGraph_t graph = nullptr;
        (void)cudaStreamEndCapture(stream, &graph);
        const RecordedGraph forgotten(graph);
    }

    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Releaser<forget>> stream_;
};

// Launches that were recorded and are started together. One that is under way goes on to its end
// without its owner.
class Graph {
 public:
    // Has its room on the device from now on: a first launch that made it might wait for work under
    // way. `stream` is one that it will be launched on; nothing may be being recorded.
    Graph(const RecordedGraph& recorded, const Stream& stream) {
        cudaGraphExec_t executable = nullptr;
        CUDA_CHECK(cudaGraphInstantiate(&executable, recorded.get(), 0));
        executable_.reset(executable);
        CUDA_CHECK(cudaGraphUpload(executable, stream.get()));
    }
    void launch(const Stream& stream) const {
        CUDA_CHECK(cudaGraphLaunch(executable_.get(), stream.get()));
    }

 private:
    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Releaser<cudaGraphExecDestroy>>
        executable_;
};

}  // namespace troupe::gpu
