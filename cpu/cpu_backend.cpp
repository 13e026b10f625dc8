#include "cpu/cpu_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "cpu/compute_threads.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kv_pool.hpp"
#include "cpu/machine_memory.hpp"
#include "cpu/model_digest.hpp"
#include "cpu/row_batch.hpp"
#include "cpu/slot_table.hpp"
#include "cpu/step_sampler.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

// Part of the fingerprint: raise it when the same file and options may give other answers.
constexpr std::uint32_t kArithmeticVersion = 3;
constexpr std::uint32_t kScoreRowsMax = 32;
constexpr std::uint32_t kPositionsMax = 1U << 24;  // up to which RopeTable is exact

std::uint32_t pages_for(std::uint32_t tokens) {
    return (tokens + model::kPageTokens - 1) / model::kPageTokens;
}

KvType kv_type_of(const CpuOptions& options) {
    const bool exact = options.arithmetic == Arithmetic::float32;
    return options.kv_type.value_or(exact ? KvType::f32 : KvType::f16);
}

KvShape kv_shape_of(const model::Hyperparameters& hp, KvType type) {
    return {hp.block_count, hp.head_count_kv * kv_block_bytes(type, hp.head_length, KvPart::keys),
            hp.head_count_kv * kv_block_bytes(type, hp.head_length, KvPart::values)};
}

// The pages that the options, the machine and the slots allow.
Result<std::uint32_t> count_pages(const CpuOptions& options, const KvShape& shape,
                                  std::uint32_t context_length) {
    const MachineMemory memory = machine_memory();
    const std::uint64_t useful = std::uint64_t{options.slots_max} * pages_for(context_length);
    std::uint64_t bytes = options.kv_memory_bytes;
    if (bytes == 0) bytes = std::min(memory.total_bytes / 4, memory.available_bytes / 2);
    const std::uint64_t pages =
        options.kv_pages != 0 ? options.kv_pages : std::min(useful, bytes / shape.page_bytes());
    const std::uint64_t wanted = std::max<std::uint64_t>(pages, 1) * shape.page_bytes();
    if (pages == 0 || wanted > memory.available_bytes) {
        const std::uint64_t shown = std::max(wanted, options.kv_memory_bytes);
        return Error{
            ErrorKind::out_of_memory,
            fmt::format("no memory for the KV cache: {:.1f} MiB wanted ({:.2f} MiB a page "
                        "of {} tokens), {:.1f} MiB available; {} --kv-memory",
                        static_cast<double>(shown) / 0x1p20,
                        static_cast<double>(shape.page_bytes()) / 0x1p20, model::kPageTokens,
                        static_cast<double>(memory.available_bytes) / 0x1p20,
                        pages == 0 ? "raise" : "lower")};
    }
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(pages, std::numeric_limits<std::uint32_t>::max()));
}

Result<std::unique_ptr<ComputeThreads>> start_threads(std::uint32_t count) {
    if (count == 0) count = std::max(1U, std::thread::hardware_concurrency());
    try {
        return std::make_unique<ComputeThreads>(count);
    } catch (const std::system_error& error) {
        return Error{ErrorKind::out_of_memory,
                     fmt::format("cannot start {} compute threads: {}; lower --threads", count,
                                 error.what())};
    }
}

class CpuBackend final : public model::Backend {
 public:
    CpuBackend(std::unique_ptr<ComputeThreads> threads, PackedModel packed, KvPool kv,
               model::BackendInfo info)
        : threads_(std::move(threads)),
          model_(std::move(packed)),
          kv_(std::move(kv)),
          info_(std::move(info)),
          slots_(info_.slots_max, info_.context_length, info_.pages_total) {
        batch_.reserve(info_.tokens_per_step_max);
    }

    [[nodiscard]] Result<> prepare(const Kernels& kernels, const CpuOptions& options);

    [[nodiscard]] const model::BackendInfo& info() const override { return info_; }
    void submit(const model::StepPlan& plan) override;
    void wait(model::StepResult& result) override;
    void reset() override;

 private:
    void build_batch(const model::StepPlan& plan);
    void append_sequence(const model::StepPlan& plan, const model::SequenceStep& sequence);

    std::unique_ptr<ComputeThreads> threads_;
    PackedModel model_;
    KvPool kv_;
    model::BackendInfo info_;
    SlotTable slots_;
    RowBatch batch_;
    std::unique_ptr<Forward> forward_;
    std::unique_ptr<StepSampler> sampler_;
    std::array<const model::StepPlan*, 2> outstanding_{};  // oldest first
};

Result<> CpuBackend::prepare(const Kernels& kernels, const CpuOptions& options) {
    const Forward::Limits limits{info_.tokens_per_step_max, kScoreRowsMax, info_.context_length,
                                 info_.window};
    Result<std::unique_ptr<Forward>> forward =
        Forward::create(model_, kernels, kv_type_of(options), kv_, *threads_, limits);
    if (!forward) return forward.error();
    forward_ = std::move(*forward);
    forward_->set_tap(options.tap);
    forward_->set_attend(options.attend);
    Result<std::unique_ptr<StepSampler>> sampler =
        StepSampler::create(*forward_, *threads_,
                            {static_cast<std::uint32_t>(info_.vocabulary_size),
                             info_.tokens_per_step_max, kScoreRowsMax},
                            options.end_tokens);
    if (!sampler) return sampler.error();
    sampler_ = std::move(*sampler);
    return {};
}

void CpuBackend::submit(const model::StepPlan& plan) {
    TROUPE_ASSERT(outstanding_[1] == nullptr, "two steps are outstanding already");
    outstanding_[outstanding_[0] == nullptr ? 0 : 1] = &plan;
}

void CpuBackend::wait(model::StepResult& result) {
    TROUPE_ASSERT(outstanding_[0] != nullptr, "no step is outstanding");
    const model::StepPlan& plan = *std::exchange(outstanding_[0], outstanding_[1]);
    outstanding_[1] = nullptr;
    const auto start = std::chrono::steady_clock::now();
    result.clear();
    result.step = plan.step;
    slots_.apply(plan);
    for (const model::PageCopy& copy : plan.copies)
        kv_.copy_page(copy.from, copy.to);
    build_batch(plan);
    forward_->run(batch_);
    sampler_->run(plan, batch_, slots_, result);
    result.compute_ns = std::chrono::nanoseconds{std::chrono::steady_clock::now() - start}.count();
}

void CpuBackend::reset() {
    outstanding_ = {};
    slots_.reset();
}

void CpuBackend::build_batch(const model::StepPlan& plan) {
    TROUPE_ASSERT(plan.tokens.size() <= info_.tokens_per_step_max);
    batch_.clear();
    for (const model::SequenceStep& sequence : plan.sequences)
        append_sequence(plan, sequence);
    TROUPE_ASSERT(batch_.rows() == plan.tokens.size(), "a token belongs to no sequence");
}

void CpuBackend::append_sequence(const model::StepPlan& plan, const model::SequenceStep& sequence) {
    const Slot& slot = slots_[sequence.slot];
    const std::uint32_t end = sequence.position + sequence.token_count;
    TROUPE_ASSERT(sequence.token_count > 0 && end <= info_.context_length);
    TROUPE_ASSERT(sequence.token_begin == batch_.rows());
    TROUPE_ASSERT(sequence.token_begin + sequence.token_count <= plan.tokens.size());
    TROUPE_ASSERT(pages_for(end) <= slot.pages.size(), "a position has no page");
    TROUPE_ASSERT(std::max(sequence.sample_count, sequence.logits_count) <= sequence.token_count);
    TROUPE_ASSERT(sequence.target_count + sequence.sample_count <= sequence.token_count);
    batch_.runs.push_back(
        {slot.pages.data(), sequence.position, batch_.rows(), sequence.token_count});
    for (std::uint32_t i = 0; i < sequence.token_count; ++i) {
        const model::TokenId given = plan.tokens[sequence.token_begin + i];
        const model::TokenId token = given == model::kDrawnToken ? slot.drawn : given;
        TROUPE_ASSERT(token >= 0 && token < info_.vocabulary_size);
        const std::uint32_t position = sequence.position + i;
        batch_.tokens.push_back(token);
        batch_.positions.push_back(position);
        batch_.pages.push_back(slot.pages[position / model::kPageTokens]);
    }
}

// What the file, the arithmetic, the cache and the window make of an answer.
std::string fingerprint(const CpuOptions& options, std::uint64_t digest) {
    constexpr auto kv_name = [](KvType type) {
        switch (type) {
            case KvType::f32:
                return "kv32";
            case KvType::f16:
                return "kv16";
            case KvType::int8:
                return "kv8";
            case KvType::int4:
                return "kv4";
        }
        return "";
    };
    const model::AttentionWindow& window = options.window;
    return fmt::format(
        "cpu{}-{}-{}{}-{:016x}", kArithmeticVersion,
        options.arithmetic == Arithmetic::float32 ? "f32" : "q", kv_name(kv_type_of(options)),
        window.bounded() ? fmt::format("-w{}+{}", window.tokens, window.sinks) : "", digest);
}

model::BackendInfo describe(const PackedModel& packed, const Kernels& kernels,
                            const CpuOptions& options, std::uint64_t digest) {
    const model::Hyperparameters& hp = packed.hyperparameters();
    const bool exact = options.arithmetic == Arithmetic::float32;
    model::BackendInfo info;
    info.kind = "cpu";
    info.arithmetic = fmt::format("{} {}", exact ? "float32" : "int8", kernels.name);
    info.fingerprint = fingerprint(options, digest);
    info.vocabulary_size = static_cast<std::int32_t>(hp.vocabulary_size);
    info.context_length = options.window.bounded() ? kPositionsMax : hp.context_length;
    if (options.context_length_max != 0) {
        info.context_length = std::min(info.context_length, options.context_length_max);
    }
    info.slots_max = options.slots_max;
    info.tokens_per_step_max = options.tokens_per_step_max;
    info.kv_type = to_string(kv_type_of(options));
    info.window = options.window;
    info.weight_bytes = packed.weight_bytes();
    return info;
}

}  // namespace

Result<std::unique_ptr<model::Backend>> make_cpu_backend(const model::GgufFile& file,
                                                         const CpuOptions& options) {
    TROUPE_ASSERT(options.slots_max > 0 && options.tokens_per_step_max > 0);
    // First, as it may ask the system for registers that threads inherit.
    const Result<const Kernels*> kernels =
        options.kernels != nullptr ? options.kernels : find_kernels(options.instruction_set);
    if (!kernels) return kernels.error();
    Result<std::unique_ptr<ComputeThreads>> threads = start_threads(options.threads);
    if (!threads) return threads.error();
    Result<PackedModel> packed =
        PackedModel::pack(file, options.arithmetic, **threads, options.progress);
    if (!packed) return packed.error();

    model::BackendInfo info = describe(*packed, **kernels, options, model_digest(file, **threads));
    const model::Hyperparameters& hp = packed->hyperparameters();
    const Result<> fits = model::check_window(options.window, hp.context_length);
    if (!fits) return fits.error();
    const KvShape shape = kv_shape_of(hp, kv_type_of(options));
    const Result<std::uint32_t> pages =
        count_pages(options, shape, std::min(info.context_length, hp.context_length));
    if (!pages) return pages.error();
    info.pages_total = *pages;
    info.kv_bytes_per_token = shape.page_bytes() / model::kPageTokens;
    Result<KvPool> kv = KvPool::create(shape, *pages, options.huge_pages);
    if (!kv) return kv.error();

    auto backend = std::make_unique<CpuBackend>(std::move(*threads), std::move(*packed),
                                                std::move(*kv), std::move(info));
    if (Result<> prepared = backend->prepare(**kernels, options); !prepared) {
        return prepared.error();
    }
    return backend;
}

}  // namespace troupe::cpu
