// A block draws one token. Scores are read from memory a few times and never sorted; each pass is a
// loop of all threads over the vocabulary, and what it finds does not depend on their order.
#include "gpu/kernels/sample.hpp"

#include "gpu/kernels/block_reduce.cuh"
#include "gpu/kernels/step_tables.hpp"
#include "model/math.hpp"
#include "model/philox.hpp"

namespace troupe::gpu {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kBanned = -std::numeric_limits<float>::infinity();
// "Reaching" top_p forgives this share of the total, as in model/sampler_steps.cpp.
constexpr double kReachTolerance = 1e-6;
constexpr unsigned kSumLanes = 128;

struct Scratch {
    unsigned long long bins[kDigitBins];
    double lanes[kSumLanes];
    RankKey keys[kSampleThreads / kWarpLanes];
    double values[kSampleThreads / kWarpLanes];
    std::uint32_t counts[kSampleThreads / kWarpLanes];
};

template <class Visit>
__device__ __forceinline__ void for_each_token(std::uint32_t vocabulary, Visit visit) {
    for (std::uint32_t i = threadIdx.x; i < vocabulary; i += kSampleThreads)
        visit(i);
}

struct Best {
    RankKey key;  // of the best token; 0: none may be drawn
    bool finite;  // no NaN, no +infinity
};

__device__ Best find_best(const float* scores, std::uint32_t vocabulary, Scratch& scratch) {
    RankKey key = 0;
    std::uint32_t bad = 0;
    for_each_token(vocabulary, [&](std::uint32_t i) {
        bad |= scores[i] <= kFloatMax ? 0U : 1U;
        const RankKey own = rank_key(scores[i], i);
        key = own > key ? own : key;
    });
    key = block_reduce(key, scratch.keys, [](RankKey a, RankKey b) { return a > b ? a : b; });
    bad = block_reduce(bad, scratch.counts, [](std::uint32_t a, std::uint32_t b) { return a | b; });
    return {key, bad == 0};
}

// The sum of exp((z - max) * inverse_temperature): the lanes and the tree of
// model/row_kernels.cpp, so the same bits.
__device__ double exp_sum(const float* scores, std::uint32_t vocabulary, float max,
                          float inverse_temperature, Scratch& scratch) {
    if (threadIdx.x < kSumLanes) {
        double sum = 0;
        for (std::uint32_t i = threadIdx.x; i < vocabulary; i += kSumLanes)
            sum += static_cast<double>(model::math::exp((scores[i] - max) * inverse_temperature));
        scratch.lanes[threadIdx.x] = sum;
    }
    for (unsigned width = kSumLanes / 2; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) scratch.lanes[threadIdx.x] += scratch.lanes[threadIdx.x + width];
    }
    __syncthreads();
    const double sum = scratch.lanes[0];
    __syncthreads();
    return sum;
}

__device__ void set_score(float& entry, double score) {
    if (entry == kBanned) return;
    const double low = -double{kFloatMax};
    const double high = double{kFloatMax};
    entry = score == -std::numeric_limits<double>::infinity()
                ? kBanned
                : static_cast<float>(score < low    ? low
                                     : score > high ? high
                                                    : score);
}

__device__ double penalised_score(double score, const SampleRow& row, std::uint32_t answer_count) {
    score = score > 0 ? score / row.repetition_penalty : score * row.repetition_penalty;
    if (answer_count == 0) return score;
    return score - (answer_count * row.frequency_penalty + row.presence_penalty);
}

// Copies the row and applies the end tokens' mask, the bias and the penalties.
__device__ void edit(const Sample& p, const SampleRow& row, const float* raw, float* edited) {
    for_each_token(p.vocabulary, [&](std::uint32_t i) { edited[i] = raw[i]; });
    __syncthreads();
    if (threadIdx.x == 0) {  // in order: a list may name a token twice
        for (std::uint32_t i = 0; row.masks_end_tokens && i < p.end_token_count; ++i)
            edited[p.end_tokens[i]] = kBanned;
        for (std::uint32_t i = 0; i < row.bias_count; ++i) {
            const BiasEntry entry = p.bias[row.bias_begin + i];
            float& score = edited[entry.token];
            set_score(score, entry.bias <= -100 ? double{kBanned} : double{score} + entry.bias);
        }
    }
    __syncthreads();
    if (!row.penalised) return;
    const std::uint32_t* const counts = p.counts + std::size_t{row.slot} * p.vocabulary;
    for_each_token(p.vocabulary, [&](std::uint32_t i) {
        if (counts[i] == 0) return;
        std::uint32_t answer_count = counts[i] & ~kInPrompt;
        for (std::uint32_t j = 0; j < row.later_count; ++j)
            answer_count -=
                static_cast<std::uint32_t>(p.tokens[row.later_begin + j]) == i ? 1U : 0U;
        if (answer_count == 0 && (counts[i] & kInPrompt) == 0) return;
        set_score(edited[i], penalised_score(double{edited[i]}, row, answer_count));
    });
    __syncthreads();
}

// The smallest key that top-k and top-p keep; 1: all. Weights are rounded to 2^-scale_bits of the
// best one's, so that their sums are integers: an error below 1e-8 of the total, far below what
// reaching forgives.
__device__ RankKey truncate(const Sample& p, const SampleRow& row, const float* scores,
                            RankKey best, Scratch& scratch) {
    RankKey kept = 1;
    if (row.top_k > 0) {
        kept = leading_part(scores, p.vocabulary, static_cast<std::uint64_t>(row.top_k),
                            scratch.bins, [](float) { return 1ULL; });
    }
    if (row.top_p >= 1) return kept;
    int scale_bits = 62;
    while (std::uint64_t{p.vocabulary} >> (62 - scale_bits) != 0)
        --scale_bits;
    const double scale = static_cast<double>(1ULL << scale_bits);
    const double top = double{score_of(best)} / row.temperature;
    const auto weight_of = [&](float score) {
        const double weight = model::math::exp(double{score} / row.temperature - top);
        return static_cast<unsigned long long>(weight * scale);
    };
    double total = 0;
    if (row.top_k > 0) {
        unsigned long long sum = 0;
        for_each_token(p.vocabulary, [&](std::uint32_t i) {
            if (rank_key(scores[i], i) >= kept) sum += weight_of(scores[i]);
        });
        sum = block_reduce<unsigned long long>(
            sum, scratch.bins, [](unsigned long long a, unsigned long long b) { return a + b; });
        total = static_cast<double>(sum);
    } else {
        total = scale * exp_sum(scores, p.vocabulary, score_of(best),
                                static_cast<float>(1.0 / row.temperature), scratch);
    }
    const double target = (row.top_p - kReachTolerance) * total;
    const std::uint64_t reached = target < 1 ? 1 : static_cast<std::uint64_t>(target);
    const RankKey by_weight = leading_part(scores, p.vocabulary, reached, scratch.bins, weight_of);
    return by_weight > kept ? by_weight : kept;
}

// argmax of score / temperature + noise over what is kept, ties to the lower id.
__device__ std::uint32_t draw(const Sample& p, const SampleRow& row, const float* scores,
                              RankKey best, RankKey kept, Scratch& scratch) {
    const model::DrawPlace place{row.seed, row.answer_index, row.position};
    const double top = double{score_of(best)} / row.temperature;
    const double floor = top + model::gumbel(place, static_cast<std::int32_t>(token_of(best)));
    double value = floor;
    std::uint32_t winner = token_of(best);
    for_each_token(p.vocabulary, [&](std::uint32_t i) {
        const RankKey key = rank_key(scores[i], i);
        if (key == 0 || key < kept) return;
        const double score = double{scores[i]} / row.temperature;
        if (score + model::kGumbelMax < value) return;  // cannot win
        if (row.min_p > 0 && model::math::exp(score - top) < row.min_p) return;
        const double own = score + model::gumbel(place, static_cast<std::int32_t>(i));
        if (own > value || (own == value && i < winner)) {
            value = own;
            winner = i;
        }
    });
    const auto larger = [](double a, double b) { return a > b ? a : b; };
    const double most = block_reduce(value, scratch.values, larger);
    const std::uint32_t mine = value == most ? winner : 0xFFFFFFFFU;
    return block_reduce(mine, scratch.counts,
                        [](std::uint32_t a, std::uint32_t b) { return a < b ? a : b; });
}

// Natural log-probabilities of the softmax of the raw row: the best by rank, and the log of its
// sum.
__device__ double list_logprobs(const Sample& p, const SampleRow& row, const float* raw,
                                SampleResult& result, Scratch& scratch) {
    RankKey before = find_best(raw, p.vocabulary, scratch).key;
    const float max = score_of(before);
    const double sum = double{max} + model::math::log(exp_sum(raw, p.vocabulary, max, 1, scratch));
    std::uint32_t count = 0;
    while (count < row.top_logprobs && before != 0) {
        if (threadIdx.x == 0) {
            result.top_ids[count] = static_cast<std::int32_t>(token_of(before));
            result.top_logprobs[count] = static_cast<float>(double{score_of(before)} - sum);
        }
        ++count;
        RankKey next = 0;
        for_each_token(p.vocabulary, [&](std::uint32_t i) {
            const RankKey key = rank_key(raw[i], i);
            next = key < before && key > next ? key : next;
        });
        before =
            block_reduce(next, scratch.keys, [](RankKey a, RankKey b) { return a > b ? a : b; });
    }
    if (threadIdx.x == 0) result.top_count = count;
    return sum;
}

__device__ void fail(const Sample& p, const SampleRow& row, SampleResult& result) {
    if (threadIdx.x != 0) return;
    result.failed = 1;
    result.token = 0;
    result.top_count = 0;
    if (row.last_of_slot) p.drawn[row.slot] = 0;  // a planned step needs some token to go on with
}

__global__ void __launch_bounds__(kSampleThreads) sample_kernel(const Sample p) {
    Scratch& scratch = *shared_memory<Scratch>();
    const SampleRow row = p.rows[blockIdx.x];
    SampleResult& result = p.results[blockIdx.x];
    const float* const raw =
        p.scores + std::size_t{row.score_row - p.first_score_row} * p.vocabulary;
    float* const edited = p.edited + std::size_t{row.score_row - p.first_score_row} * p.vocabulary;

    const Best best_raw = find_best(raw, p.vocabulary, scratch);
    if (!best_raw.finite || best_raw.key == 0) return fail(p, row, result);
    edit(p, row, raw, edited);
    const RankKey best = find_best(edited, p.vocabulary, scratch).key;
    if (best == 0) return fail(p, row, result);

    std::uint32_t token = token_of(best);
    if (row.temperature > 0) {
        token = draw(p, row, edited, best, truncate(p, row, edited, best, scratch), scratch);
    }
    double log_sum = 0;
    if (row.logprobs) log_sum = list_logprobs(p, row, raw, result, scratch);
    if (threadIdx.x != 0) return;
    result.failed = 0;
    result.token = static_cast<std::int32_t>(token);
    result.logprob = static_cast<float>(double{raw[token]} - log_sum);
    if (!row.logprobs) result.top_count = 0;
    if (row.last_of_slot) p.drawn[row.slot] = result.token;
}

}  // namespace

void sample(const Sample& p, cudaStream_t stream) {
    if (p.count > 0) launch(sample_kernel, p.count, kSampleThreads, sizeof(Scratch), stream, p);
}

}  // namespace troupe::gpu
