// The backend as others see it: which cards, what the model and the options make of an answer, and
// a device that is made anew when it was lost.
#include "gpu/cuda_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/cards.hpp"
#include "gpu/collectives.hpp"
#include "gpu/device_backend.hpp"
#include "gpu/device_users.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gpu {
namespace {

// Part of the fingerprint: raise it when the same file and options may give other answers.
constexpr std::uint32_t kArithmeticVersion = 4;
constexpr std::uint32_t kPositionsMax = 1U << 24;  // up to which angles are exact, with a window

model::BackendInfo describe(const std::vector<DeviceModel>& ranks, const CudaOptions& options,
                            const Cards& cards) {
    const DeviceModel& model = ranks.front();
    const cudaDeviceProp& card = cards.kind;
    model::BackendInfo info;
    info.kind = "cuda";
    info.arithmetic = fmt::format("{} on {}{}{}", model.on_tensor_units() ? "float16" : "float32",
                                  ranks.size() == 1 ? "" : fmt::format("{} x ", ranks.size()),
                                  card.name, cards.warpgroups ? ", prompts by warpgroups" : "");
    // Tensor units add up in a way of their generation's own; all else is the same on every card.
    const int generation = model.on_tensor_units() ? 10 * card.major + card.minor : 0;
    info.fingerprint =
        fmt::format("cuda{}-{}{}-{}{}-{:016x}", kArithmeticVersion,
                    generation == 0 ? "f32" : fmt::format("f16-sm{}", generation),
                    // Sums over columns are of as many parts as there are ranks.
                    ranks.size() == 1 ? "" : fmt::format("-tp{}", ranks.size()),
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
    for (const DeviceModel& rank : ranks)
        info.weight_bytes += rank.weight_bytes;
    return info;
}

Result<std::unique_ptr<DeviceBackend>> make_on_device(const model::GgufFile& file,
                                                      const CudaOptions& options,
                                                      const Cards& cards) {
    std::unique_ptr<Collectives> collectives;
    if (cards.ids.size() > 1) {
        Result<std::unique_ptr<Collectives>> made = make_collectives(cards.ids);
        if (!made) return made.error();
        collectives = std::move(*made);
    }
    Result<std::vector<DeviceModel>> models = upload_model(file, cards.ids, options.progress);
    if (!models) return models.error();
    const Result<> fits = model::check_window(options.window, models->front().hp.context_length);
    if (!fits) return fits.error();
    model::BackendInfo info = describe(*models, options, cards);
    auto backend = std::make_unique<DeviceBackend>(
        cards, std::move(*models), std::move(collectives), std::move(info), options);
    if (Result<> pages = backend->allocate_pages(options); !pages) return pages.error();
    return backend;
}

// What every call goes to, made anew by reset() where the device has failed: then all that the
// process had on it is gone, of a draft model beside this one, too.
class RecoveringBackend final : public model::Backend, private DeviceUser {
 public:
    RecoveringBackend(const model::GgufFile& file, CudaOptions options, Cards cards,
                      std::unique_ptr<DeviceBackend> backend)
        : file_(file),
          options_(std::move(options)),
          cards_(std::move(cards)),
          backend_(std::move(backend)) {
        info_ = backend_->info();
        options_.kv_pages = info_.pages_total;
        options_.progress = nullptr;  // nobody watches what reset() does
    }

    [[nodiscard]] const model::BackendInfo& info() const override { return info_; }
    void submit(const model::StepPlan& plan) override {
        attempt([&](DeviceBackend& backend) { backend.submit(plan); });
    }
    void wait(model::StepResult& result) override {
        attempt([&](DeviceBackend& backend) { backend.wait(result); });
    }
    void reset() override {
        if (any_card_failed()) reset_cards();
        if (backend_) return backend_->reset();
        Result<std::unique_ptr<DeviceBackend>> backend = make_on_device(file_, options_, cards_);
        if (!backend) throw model::BackendError(backend.error().message);
        backend_ = std::move(*backend);
    }

 private:
    void come_to_rest() override {
        if (backend_ && !backend_->come_to_rest()) backend_.reset();
    }
    void leave_cards() override { backend_.reset(); }
    [[nodiscard]] const std::vector<int>& cards() const override { return cards_.ids; }

    template <class Call>
    void attempt(Call call) {
        if (!backend_) throw model::BackendError("the CUDA device was reset");
        try {
            call(*backend_);
        } catch (const model::BackendError&) {
            backend_->end_exchanges();
            throw;
        }
    }

    const model::GgufFile& file_;
    CudaOptions options_;
    const Cards cards_;
    model::BackendInfo info_;
    std::unique_ptr<DeviceBackend> backend_;  // null between a fault and the reset() after it
};

}  // namespace

Result<std::unique_ptr<model::Backend>> make_cuda_backend(const model::GgufFile& file,
                                                          const CudaOptions& options) {
    TROUPE_ASSERT(options.slots_max > 0 && options.tokens_per_step_max > 0 && options.cards > 0);
    try {
        Result<Cards> cards = find_cards(options.first_card, options.cards);
        if (!cards) return cards.error();
        Result<std::unique_ptr<DeviceBackend>> backend = make_on_device(file, options, *cards);
        if (!backend) return backend.error();
        return std::make_unique<RecoveringBackend>(file, options, std::move(*cards),
                                                   std::move(*backend));
    } catch (const model::BackendError& error) {
        return Error{ErrorKind::out_of_memory,
                     fmt::format("the CUDA device cannot hold the model or its buffers: {}; lower "
                                 "--max-running or --max-step-tokens, raise --gpus, or use "
                                 "--backend cpu",
                                 error.what())};
    }
}

}  // namespace troupe::gpu
