// Draws on the device against model::sample: the same tokens and log-probabilities from the same
// scores, for every parameter that the device knows.
#include <cmath>
#include <limits>
#include <random>

#include "gpu/device_memory.hpp"
#include "gpu/kernels/sample.hpp"
#include "gpu/kernels/step_tables.hpp"
#include "gpu/step_builder.hpp"
#include "model/sampler.hpp"
#include "tests/gpu/gpu_fixture.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

const Tokens kEndTokens{2, 5};
constexpr std::uint32_t kPosition = 21;  // of the token that is drawn
constexpr std::uint32_t kPromptLength = 4;

model::SlotOpen slot_open(const model::DecodingParams& params) {
    model::SlotOpen open;
    open.params = params;
    open.answer_index = 3;
    open.prompt_length = kPromptLength;
    open.answer_count = 4;
    open.history = {7, 9, 7, 11, 30, 9, 30, 30};
    return open;
}

struct Draw {
    bool failed = false;
    model::TokenId id = 0;
    float logprob = 0;
    std::vector<model::TokenId> top_ids;
    std::vector<float> top_logprobs;
    friend bool operator==(const Draw&, const Draw&) = default;
};

Draw draw_on_host(std::vector<float> row, const model::DecodingParams& params,
                  std::uint32_t position) {
    const model::SlotOpen open = slot_open(params);
    model::TokenCounts counts;
    for (std::size_t i = 0; i < open.history.size(); ++i) {
        i < kPromptLength ? counts.add_prompt(open.history[i]) : counts.add_answer(open.history[i]);
    }
    const model::SamplingContext context{
        params, &counts, kEndTokens, open.answer_index, position - kPromptLength, position};
    model::SamplerScratch scratch;
    std::vector<model::TokenLogprob> top;
    const auto sampled = model::sample(row, context, scratch, top);
    Draw draw;
    draw.failed = !sampled;
    if (!sampled) return draw;
    draw.id = sampled->id;
    if (params.logprobs) draw.logprob = sampled->logprob;
    for (const model::TokenLogprob& entry : top) {
        draw.top_ids.push_back(entry.id);
        draw.top_logprobs.push_back(entry.logprob);
    }
    return draw;
}

// Through the step builder, so that its translation of parameters is tested too: a slot is opened
// with its history, then one row is scored at the position before the draw's.
class DeviceDrawer {
 public:
    explicit DeviceDrawer(std::uint32_t vocabulary)
        : vocabulary_(vocabulary),
          counts_(vocabulary),
          scores_(vocabulary),
          edited_(vocabulary),
          end_tokens_(DeviceBuffer<std::int32_t>::upload(kEndTokens)),
          tokens_(1),
          drawn_(1),
          result_(1),
          page_table_(8) {}

    Draw draw(const std::vector<float>& row, const model::DecodingParams& params,
              std::uint32_t position) {
        SlotTable slots(1, 128, 8, {8, 0});
        StepBuilder builder(slots, {2, 10'000.0},
                            {128, 1, 0, static_cast<std::int32_t>(vocabulary_), 128, {}, {}});
        model::StepPlan plan;
        plan.opens.push_back(slot_open(params));
        for (model::PageId page = 0; page < 8; ++page)
            plan.grants.push_back({0, page});
        // Fed again: the answer's last known token, which the history already counts.
        plan.sequences.push_back({0, position - 1, 0, 1, 1, 0});
        plan.tokens = {30};
        plan.opens.front().answer_count = position - kPromptLength;
        builder.build(plan, arrays_, record_);
        const StepPointers at = upload_.start(arrays_, stream_);
        CUDA_CHECK(cudaMemcpy(scores_.data(), row.data(), scores_.bytes(), cudaMemcpyHostToDevice));
        apply(at);
        const auto count = static_cast<std::uint32_t>(arrays_.samples.size());
        sample({at.samples, result_.data(), scores_.data(), edited_.data(), counts_.data(), at.bias,
                end_tokens_.data(), tokens_.data(), drawn_.data(), count, 0, vocabulary_,
                static_cast<std::uint32_t>(end_tokens_.size())},
               stream_.get());
        stream_.synchronise();
        return read(result_.download().front(), params.logprobs);
    }

 private:
    void apply(const StepPointers& at) {
        StepTables tables{};
        tables.cleared_counts = at.cleared_counts;
        tables.count_edits = at.count_edits;
        tables.cleared_count = static_cast<std::uint32_t>(arrays_.cleared_counts.size());
        tables.edit_count = static_cast<std::uint32_t>(arrays_.count_edits.size());
        tables.counts = counts_.data();
        tables.vocabulary = vocabulary_;
        apply_tables(tables, stream_.get());
    }
    static Draw read(const SampleResult& result, bool logprobs) {
        Draw draw;
        draw.failed = result.failed != 0;
        if (draw.failed) return draw;
        draw.id = result.token;
        if (logprobs) draw.logprob = result.logprob;
        draw.top_ids.assign(result.top_ids, result.top_ids + result.top_count);
        draw.top_logprobs.assign(result.top_logprobs, result.top_logprobs + result.top_count);
        return draw;
    }

    std::uint32_t vocabulary_;
    Stream stream_;
    StepArrays arrays_;
    StepRecord record_;
    StepUpload upload_;
    DeviceBuffer<std::uint32_t> counts_;
    DeviceBuffer<float> scores_, edited_;
    DeviceBuffer<std::int32_t> end_tokens_, tokens_, drawn_;
    DeviceBuffer<SampleResult> result_;
    DeviceBuffer<std::uint32_t> page_table_;
};

std::vector<float> random_row(std::size_t size, std::uint32_t seed, float scale) {
    std::mt19937 random(seed);
    std::vector<float> row(size);
    for (float& score : row) {
        score = std::normal_distribution<float>(0, scale)(random);
        if (random() % 7 == 0) score = std::round(score);  // ties
    }
    return row;
}

model::DecodingParams random_params(std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto maybe = [&](auto& value, auto on) {
        if (random() % 2 == 0) value = on;
    };
    model::DecodingParams params;
    params.seed = seed * 0x9E3779B97F4A7C15ULL;
    params.temperature = std::array{0.0, 0.3, 1.0, 1.7}[random() % 4];
    maybe(params.top_k, static_cast<std::int32_t>(1 + random() % 60));
    maybe(params.top_p, std::array{0.0, 0.3, 0.8, 0.99}[random() % 4]);
    maybe(params.min_p, std::array{0.02, 0.3, 1.0}[random() % 3]);
    maybe(params.repetition_penalty, 1.3);
    maybe(params.frequency_penalty, 0.7);
    maybe(params.presence_penalty, -0.4);
    maybe(params.min_tokens, 100);
    if (random() % 2 == 0) params.logit_bias = {{9, 1.5F}, {12, -100.0F}, {30, -3.0F}};
    maybe(params.logprobs, true);
    maybe(params.top_logprobs, static_cast<std::int32_t>(random() % 33));
    return params;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "the device draws what model::sample draws", "[gpu][sampler]") {
    const auto vocabulary = GENERATE(40U, 512U, 1500U);
    DeviceDrawer drawer(vocabulary);
    for (std::uint32_t seed = 0; seed < 120; ++seed) {
        CAPTURE(vocabulary, seed);
        const model::DecodingParams params = random_params(seed);
        REQUIRE_FALSE(draws_on_host(params));
        const std::vector<float> row = random_row(vocabulary, seed, seed % 3 == 0 ? 0.2F : 4.0F);
        const Draw expected = draw_on_host(row, params, kPosition);
        REQUIRE_FALSE(expected.failed);
        REQUIRE(drawer.draw(row, params, kPosition) == expected);
    }
}

TEST_CASE_METHOD(EmulatorFixture, "the device refuses rows that hold no draw", "[gpu][sampler]") {
    DeviceDrawer drawer(64);
    const float infinity = std::numeric_limits<float>::infinity();
    const auto failed = [&](std::vector<float> row) {
        const Draw draw = drawer.draw(row, random_params(1), kPosition);
        CHECK(draw.failed == draw_on_host(row, random_params(1), kPosition).failed);
        return draw.failed;
    };
    std::vector<float> row = random_row(64, 1, 1);
    CHECK_FALSE(failed(row));
    for (const float bad : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (const std::size_t at : {0U, 2U, 9U, 63U}) {  // 2: an end token, 9: in the history
            std::vector<float> spoilt = row;
            spoilt[at] = bad;
            CHECK(failed(spoilt));
        }
    }
    CHECK(failed(std::vector<float>(64, -infinity)));
    std::vector<float> one(64, -infinity);
    one[33] = -5;
    CHECK_FALSE(failed(one));
}

TEST_CASE("what the device cannot draw is a matter of the request alone", "[gpu][sampler]") {
    model::DecodingParams params;
    CHECK_FALSE(draws_on_host(params));
    params.samplers = {model::SamplerStep::top_p, model::SamplerStep::temperature};
    CHECK(draws_on_host(params));
    params = {};
    params.typical_p = 0.5;
    CHECK(draws_on_host(params));
    params = {};
    params.logprobs = true;
    params.top_logprobs = 32;
    CHECK_FALSE(draws_on_host(params));
    params.top_logprobs = 33;  // a wide beam search
    CHECK(draws_on_host(params));
    params.top_logprobs = 1;
    params.logprobs_mode = model::LogprobsMode::processed;
    CHECK(draws_on_host(params));
}
