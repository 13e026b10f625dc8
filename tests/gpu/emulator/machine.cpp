#include "tests/gpu/emulator/machine.hpp"

#include <algorithm>
#include <cstdlib>

#include "tests/gpu/emulator/emulator.hpp"

namespace troupe::emulator {
namespace {

constexpr unsigned kFruitlessMax = 10'000;        // looks in a row
constexpr std::uint64_t kLookOperationsMax = 64;  // that run while the host looks once

std::uint64_t mixed(std::uint64_t value) {  // splitmix64
    value += 0x9E3779B97F4A7C15ULL;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
}

std::uint64_t number_in_environment(const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::unique_ptr<Machine>& instance() {
    static std::unique_ptr<Machine> machine = [] {
        auto made = std::make_unique<Machine>(
            static_cast<int>(number_in_environment("TROUPE_EMULATOR_DEVICES", 1)));
        made->kernels_to_loss = number_in_environment("TROUPE_EMULATOR_LOSE_AFTER", 0);
        made->capability = static_cast<int>(number_in_environment("TROUPE_EMULATOR_CAPABILITY", 9));
        return made;
    }();
    return machine;
}

}  // namespace

Machine& machine() {
    return *instance();
}

int& current_device() {
    thread_local int index = 0;
    return index;
}

Machine::Machine(int devices) {
    for (int index = 0; index < devices; ++index)
        devices_.push_back(std::make_unique<Device>());
}

Device& Machine::current() {
    return device(current_device());
}

Device* Machine::owner(const void* pointer) {
    const auto it = std::ranges::find_if(devices_, [pointer](const auto& device) {
        return device->memory.is_device_address(pointer);
    });
    return it == devices_.end() ? nullptr : it->get();
}

void Machine::set_seed(std::uint64_t seed) {
    seed_ = seed;
    draws_ = 0;
}

std::uint64_t Machine::random() {
    return seed_ == 0 ? 0 : mixed(seed_ * 1'000'003 + ++draws_);
}

cudaError_t Machine::report(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

void Machine::fail(int index, cudaError_t error, const std::string& what) {
    if (device(index).error != cudaSuccess) return;
    device(index).error = error;
    if (fault.empty()) fault = what;
}

void Machine::count_kernel(int index) {
    ++launches;
    if (kernels_to_loss != 0 && --kernels_to_loss == 0)
        fail(index, cudaErrorLaunchFailure, "the device was lost");
}

bool Machine::spoils_capture() {
    bool any = false;
    for (const auto& device : devices_) {
        for (Stream* stream : device->streams) {
            if (!stream->captured) continue;
            stream->captured->valid = false;
            any = true;
        }
    }
    return any;
}

std::unique_ptr<Graph> Machine::end_capture(Stream& stream) {
    std::unique_ptr<Graph> captured = std::move(stream.captured);
    if (captured && captures_to_failure != 0 && --captures_to_failure == 0) captured->valid = false;
    if (captured && !captured->valid) captured.reset();
    return captured;
}

cudaError_t Machine::enqueue(Stream* stream, Operation operation) {
    if (stream == nullptr) return report(cudaErrorInvalidValue);
    if (status(stream->device) != cudaSuccess) return status(stream->device);
    if (stream->captured) {
        stream->captured->operations.push_back(std::move(operation));
        return cudaSuccess;
    }
    stream->queue.push_back(std::move(operation));
    // A third of the seeds never run ahead, a third now and then, a third mostly.
    if (seed_ % 3 != 0 && random() % 100 < 45 * (seed_ % 3)) {
        if (Stream* const next = pick()) run_next(*next);
        close_memory();
    }
    return status(stream->device);
}

cudaError_t Machine::run_until(int index, const std::function<bool()>& done) {
    while (device(index).error == cudaSuccess && !done()) {
        Stream* const stream = pick();
        if (stream == nullptr) {
            hang(index);
            break;
        }
        run_next(*stream);
    }
    close_memory();
    return status(index);
}

void Machine::run_some(int index, const std::function<bool()>& done) {
    Stream* stream = nullptr;
    for (auto left = kLookOperationsMax - random() % kLookOperationsMax; left > 0 && !done();
         --left) {
        stream = pick();
        if (stream == nullptr) break;
        run_next(*stream);
    }
    if (stream == nullptr && ++fruitless_ > kFruitlessMax) hang(index);
    close_memory();
}

bool Machine::idle(int index) {
    return std::ranges::all_of(device(index).streams,
                               [](const Stream* stream) { return stream->queue.empty(); });
}

cudaError_t Machine::run_all() {
    for (int index = 0; index < count(); ++index) {
        const cudaError_t error = run_until(index, [this, index] { return idle(index); });
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

// Of devices that work, those whose next operation can run.
Stream* Machine::pick() {
    std::vector<Stream*> ready;
    for (const auto& device : devices_) {
        if (device->error != cudaSuccess) continue;
        for (Stream* stream : device->streams) {
            if (stream->queue.empty()) continue;
            const Operation& next = stream->queue.front();
            if (!next.ready || next.ready()) ready.push_back(stream);
        }
    }
    return ready.empty() ? nullptr : ready[random() % ready.size()];
}

void Machine::run_next(Stream& stream) {
    fruitless_ = 0;
    if (open_ != stream.device) {
        close_memory();
        device(stream.device).memory.open();
        open_ = stream.device;
    }
    const Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    operation.run();
}

void Machine::close_memory() {
    if (open_ < 0) return;
    DeviceMemory& memory = device(open_).memory;
    if (!memory.margins_intact())
        fail(open_, cudaErrorIllegalAddress, "a write past an allocation");
    memory.close();
    open_ = -1;
}

void Machine::hang(int index, const std::string& why) {
    hung = true;
    fail(index, cudaErrorLaunchFailure, why);
}

void set_seed(std::uint64_t seed) {
    machine().set_seed(seed);
}

const std::string& fault() {
    return machine().fault;
}

bool hung() {
    return machine().hung;
}

void lose_device_after(std::uint64_t kernels) {
    machine().kernels_to_loss = kernels;
}

void set_capability(int major) {
    machine().capability = major;
}

void set_warpgroups_differ(bool differ) {
    machine().warpgroups_differ = differ;
}

void fail_capture_after(std::uint64_t captures) {
    machine().captures_to_failure = captures;
}

std::uint64_t launches() {
    return machine().launches;
}

std::uint64_t graph_launches() {
    return machine().graph_launches;
}

void reset_machine(int devices) {
    instance() = std::make_unique<Machine>(devices);
    current_device() = 0;
}

}  // namespace troupe::emulator
