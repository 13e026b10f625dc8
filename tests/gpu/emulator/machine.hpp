// The emulated machine: its devices and what is under way on them. Asynchronous work is a queue of
// operations a stream. They run when the host waits for something, one at a time, from a stream
// drawn by the seed, and only until what the host waits for has happened; some seeds also run a
// little ahead at every call. What the program's own ordering does not promise is therefore wrong
// under some seed. One host thread at a time may use it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include "tests/gpu/emulator/device_memory.hpp"

namespace troupe::emulator {

struct Event {
    int device = 0;
    std::uint64_t recorded = 0;   // ticket of the last record
    std::uint64_t completed = 0;  // ticket of the last record that has run
    bool timed = false;
    std::chrono::steady_clock::time_point reached{};
};

struct Operation {
    std::function<void()> run;
    std::function<bool()> ready;  // empty: at once
};

struct Graph {
    std::vector<Operation> operations;
    bool valid = true;                        // nothing was called that a capture does not allow
    int uploaded_to = -1;                     // device where there is room for it
    std::vector<std::shared_ptr<void>> held;  // by others, until no graph holds it
};

struct Stream {
    int device = 0;
    std::deque<Operation> queue;
    std::unique_ptr<Graph> captured;  // not null while operations are recorded, not run
};

struct Device {
    DeviceMemory memory;
    std::set<Stream*> streams;
    cudaError_t error = cudaSuccess;                  // of its work: stays
    std::map<const void*, std::size_t> shared_bytes;  // that kernels have asked for
};

class Machine {
 public:
    explicit Machine(int devices);

    PinnedMemory pinned;
    std::uint64_t launches = 0;
    std::uint64_t graph_launches = 0;
    std::string fault;  // the first
    bool hung = false;  // the host waited for what could not come
    cudaError_t last_error = cudaSuccess;
    std::uint64_t kernels_to_loss = 0;      // 0: never
    std::uint64_t captures_to_failure = 0;  // likewise
    int capability = 9;                     // its first number
    bool warpgroups_differ = false;

    [[nodiscard]] int count() const { return static_cast<int>(devices_.size()); }
    [[nodiscard]] Device& device(int index) { return *devices_[static_cast<std::size_t>(index)]; }
    // The one that the calling thread has chosen.
    [[nodiscard]] Device& current();
    // Whose address that is, or null.
    [[nodiscard]] Device* owner(const void* pointer);
    void replace(int index) {
        devices_[static_cast<std::size_t>(index)] = std::make_unique<Device>();
    }

    void set_seed(std::uint64_t seed);
    std::uint64_t random();

    cudaError_t report(cudaError_t error);
    [[nodiscard]] cudaError_t status(int index) { return report(device(index).error); }
    // A fault of a device's work: every later call to it fails, too.
    void fail(int index, cudaError_t error, const std::string& what);
    // A fault of a device that the host would await for ever.
    void hang(int index, const std::string& why = "streams wait for each other for ever");
    void count_kernel(int index);
    // Calls that wait, or that a recorded piece of work could not do, end a capture: an error now,
    // and when it is closed.
    [[nodiscard]] bool spoils_capture();
    // What was put on the stream since the capture began; null where that was spoilt.
    [[nodiscard]] std::unique_ptr<Graph> end_capture(Stream& stream);

    cudaError_t enqueue(Stream* stream, Operation operation);
    // Runs operations of any device until `done`, which the host awaits of one; an error where that
    // has failed, or where none can run before.
    cudaError_t run_until(int index, const std::function<bool()>& done);
    // Some operations before `done`, if any can run: the host looks, and does not wait. Where this
    // leads nowhere for long, it hangs.
    void run_some(int index, const std::function<bool()>& done);
    [[nodiscard]] bool idle(int index);
    // Until nothing is under way on any device.
    cudaError_t run_all();

 private:
    Stream* pick();
    void run_next(Stream& stream);
    void close_memory();

    std::vector<std::unique_ptr<Device>> devices_;
    int open_ = -1;  // whose memory can be touched
    unsigned fruitless_ = 0;
    std::uint64_t seed_ = 0;
    std::uint64_t draws_ = 0;
};

[[nodiscard]] Machine& machine();
// Of the calling thread, as cudaSetDevice() left it.
[[nodiscard]] int& current_device();

}  // namespace troupe::emulator
