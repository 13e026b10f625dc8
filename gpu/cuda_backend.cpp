// The backend as others see it: which card, what the model and the options make of an answer, and a
// device that is made anew when it was lost.
#include "gpu/cuda_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/device_backend.hpp"
#include "gpu/device_users.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gpu {
namespace {

// Part of the fingerprint: raise it when the same file and options may give other answers.
constexpr std::uint32_t kArithmeticVersion = 3;
constexpr int kComputeCapabilityMin = 8;
constexpr std::uint32_t kPositionsMax = 1U << 24;  // up to which angles are exact, with a window

model::BackendInfo describe(const DeviceModel& model, const CudaOptions& options,
                            const cudaDeviceProp& card) {
    model::BackendInfo info;
    info.kind = "cuda";
    info.arithmetic =
        fmt::format("{} on {}", model.on_tensor_units() ? "float16" : "float32", card.name);
    // Tensor units add up in a way of their generation's own; all else is the same on every card.
    const int generation = model.on_tensor_units() ? 10 * card.major + card.minor : 0;
    info.fingerprint =
        fmt::format("cuda{}-{}-{}{}-{:016x}", kArithmeticVersion,
                    generation == 0 ? "f32" : fmt::format("f16-sm{}", generation),
                    options.kv_form == KvForm::int8 ? "kv8" : "kv16",
                    options.window.bounded()
                        ? fmt::format("-w{}+{}", options.window.tokens, options.window.sinks)
                        : "",
                    model.digest);
    info.vocabulary_size = static_cast<std::int32_t>(model.hp.vocabulary_size);
    info.context_length = options.window.bounded() ? kPositionsMax : model.hp.context_length;
    if (options.context_length_max != 0) {
        info.context_length = std::min(info.context_length, options.context_length_max);
    }
    info.slots_max = options.slots_max;
    info.tokens_per_step_max = options.tokens_per_step_max;
    info.kv_type = options.kv_form == KvForm::int8 ? "int8" : "f16";
    info.window = options.window;
    info.weight_bytes = model.weight_bytes;
    return info;
}

Result<cudaDeviceProp> find_card() {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        return Error{
            ErrorKind::unsupported,
            fmt::format("no CUDA device can be used ({}): install NVIDIA's driver for CUDA 13, "
                        "or use --backend cpu",
                        error == cudaSuccess ? "none found" : cudaGetErrorString(error))};
    }
    cudaDeviceProp card{};
    CUDA_CHECK(cudaGetDeviceProperties(&card, 0));
    if (card.major < kComputeCapabilityMin) {
        return Error{ErrorKind::unsupported,
                     fmt::format("{} has compute capability {}.{}; {}.0 is the least that the CUDA "
                                 "backend runs on",
                                 card.name, card.major, card.minor, kComputeCapabilityMin)};
    }
    return card;
}

Result<std::unique_ptr<DeviceBackend>> make_on_device(const model::GgufFile& file,
                                                      const CudaOptions& options) {
    const Result<cudaDeviceProp> card = find_card();
    if (!card) return card.error();
    Result<DeviceModel> device = upload_model(file, options.progress);
    if (!device) return device.error();
    const Result<> fits = model::check_window(options.window, device->hp.context_length);
    if (!fits) return fits.error();
    model::BackendInfo info = describe(*device, options, *card);
    auto backend = std::make_unique<DeviceBackend>(std::move(*device), std::move(info), options);
    if (Result<> pages = backend->allocate_pages(options); !pages) return pages.error();
    return backend;
}

// What every call goes to, made anew by reset() where the device has failed: then all that the
// process had on it is gone, of a draft model beside this one, too.
class RecoveringBackend final : public model::Backend, private DeviceUser {
 public:
    RecoveringBackend(const model::GgufFile& file, CudaOptions options,
                      std::unique_ptr<DeviceBackend> backend)
        : file_(file), options_(std::move(options)), backend_(std::move(backend)) {
        info_ = backend_->info();
        options_.kv_pages = info_.pages_total;
        options_.progress = nullptr;  // nobody watches what reset() does
    }

    [[nodiscard]] const model::BackendInfo& info() const override { return info_; }
    void submit(const model::StepPlan& plan) override { present().submit(plan); }
    void wait(model::StepResult& result) override { present().wait(result); }
    void reset() override {
        if (device_failed()) reset_device();
        if (backend_) return backend_->reset();
        Result<std::unique_ptr<DeviceBackend>> backend = make_on_device(file_, options_);
        if (!backend) throw model::BackendError(backend.error().message);
        backend_ = std::move(*backend);
    }

 private:
    void leave_device() override { backend_.reset(); }
    DeviceBackend& present() {
        if (!backend_) throw model::BackendError("the CUDA device was reset");
        return *backend_;
    }

    const model::GgufFile& file_;
    CudaOptions options_;
    model::BackendInfo info_;
    std::unique_ptr<DeviceBackend> backend_;  // null between a fault and the reset() after it
};

}  // namespace

Result<std::unique_ptr<model::Backend>> make_cuda_backend(const model::GgufFile& file,
                                                          const CudaOptions& options) {
    TROUPE_ASSERT(options.slots_max > 0 && options.tokens_per_step_max > 0);
    try {
        Result<std::unique_ptr<DeviceBackend>> backend = make_on_device(file, options);
        if (!backend) return backend.error();
        return std::make_unique<RecoveringBackend>(file, options, std::move(*backend));
    } catch (const model::BackendError& error) {
        return Error{ErrorKind::out_of_memory,
                     fmt::format("the CUDA device cannot hold the model or its buffers: {}; lower "
                                 "--max-running or --max-step-tokens, or use --backend cpu",
                                 error.what())};
    }
}

}  // namespace troupe::gpu
