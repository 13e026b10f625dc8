// From scores to tokens on the device: the usual steps of docs/decoding.md in their usual order.
// What model::sample does and this does not (typical_p, other orders, processed log-probabilities,
// long lists of biases or rivals) is drawn on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace troupe::gpu {

inline constexpr std::uint32_t kTopLogprobsMax = 32;  // a client's 20, or a beam search's
inline constexpr std::uint32_t kBiasMax = 64;         // entries of a slot's bias list

struct BiasEntry {
    std::int32_t token;
    float bias;  // -100 and below: banned
};

// One draw. Names as in model::DecodingParams; what is off has its neutral value.
struct SampleRow {
    double temperature;  // 0: greedy
    double top_p, min_p;
    double repetition_penalty, frequency_penalty, presence_penalty;
    std::uint64_t seed;
    std::int32_t top_k;  // 0: off
    std::uint32_t answer_index;
    std::uint32_t position;  // of the token that is drawn
    std::uint32_t slot;
    std::uint32_t score_row;                 // of the step
    std::uint32_t bias_begin, bias_count;    // of `bias`
    std::uint32_t later_begin, later_count;  // of `tokens`: those of this step that come after the
                                             // draw, whose counts must not count yet
    std::uint32_t top_logprobs;
    bool penalised;
    bool masks_end_tokens;
    bool logprobs;
    bool last_of_slot;  // the slot goes on with this token
};

struct SampleResult {
    std::int32_t token;
    float logprob;  // where it was asked for
    std::uint32_t top_count;
    std::uint32_t failed;  // 1: a score was not finite, or nothing may be drawn
    std::int32_t top_ids[kTopLogprobsMax];
    float top_logprobs[kTopLogprobsMax];
};

struct Sample {
    const SampleRow* rows;        // [count]
    SampleResult* results;        // [count]
    const float* scores;          // [score rows][vocabulary], as the model gave them, of the
                                  // step's score rows from `first_score_row` on
    float* edited;                // [score rows][vocabulary], for the kernel's use
    const std::uint32_t* counts;  // [slots][vocabulary], as in step_tables.hpp
    const BiasEntry* bias;
    const std::int32_t* end_tokens;  // [end_token_count]
    const std::int32_t* tokens;      // [rows of the step]
    std::int32_t* drawn;             // [slots]
    std::uint32_t count, first_score_row, vocabulary, end_token_count;
};
void sample(const Sample& p, cudaStream_t stream);

}  // namespace troupe::gpu
