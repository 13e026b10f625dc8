// Same request, same answer: the real scheduler over the real CPU backend and a tiny real model.
// Whatever else goes on, a request's tokens and their log-probabilities are, bit for bit, those
// that it gets alone.
#include <bit>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/executor.hpp"
#include "actors/scheduler.hpp"
#include "model/drafting_backend.hpp"
#include "runtime/clock.hpp"
#include "tests/cpu/backend_fixture.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

using Tokens = std::vector<model::TokenId>;

struct Answer {
    Tokens tokens;
    std::vector<std::uint32_t> logprob_bits;
    bool ended = false;
    friend bool operator==(const Answer&, const Answer&) = default;
};

// What disturbs the request that is looked at.
struct Circumstances {
    bool hit = false;         // its prefix is cached
    bool chunked = false;     // its prompt is cut into slices of a few tokens
    bool preempted = false;   // too few pages for all: somebody is preempted, again and again
    bool neighbours = false;  // others run in every step
    bool siblings = false;    // it is one of n = 3
    bool drafted = false;     // prompt lookup guesses, and the model drafts for itself

    [[nodiscard]] std::string describe() const {
        std::string text;
        for (const auto& [on, name] : {std::pair{hit, " hit"},
                                       {chunked, " chunked"},
                                       {preempted, " preempted"},
                                       {neighbours, " neighbours"},
                                       {siblings, " siblings"},
                                       {drafted, " drafted"}}) {
            if (on) text += name;
        }
        return text.empty() ? "alone" : text;
    }
};

// How the server was started.
struct Cache {
    cpu::KvType kv_type = cpu::KvType::f16;
    model::AttentionWindow window{};
};

constexpr std::uint32_t kPromptTokens = 70;
constexpr std::int32_t kAnswerTokens = 40;

// Tokens that are text, by a plain linear congruence; stories differ from the first token on.
Tokens prompt_of(std::uint32_t length, std::uint32_t story) {
    Tokens tokens{1};
    std::uint32_t state = story * 2654435761U + 12345U;
    while (tokens.size() < length) {
        state = state * 1664525U + 1013904223U;
        tokens.push_back(static_cast<model::TokenId>(259 + (state >> 16U) % 200));
    }
    return tokens;
}

model::DecodingParams greedy() {
    model::DecodingParams params;
    params.temperature = 0;
    params.max_tokens = kAnswerTokens;
    params.ignore_eos = true;
    params.logprobs = true;
    return params;
}

model::DecodingParams sampled() {
    model::DecodingParams params = greedy();
    params.temperature = 0.9;
    params.top_k = 40;
    params.top_p = 0.95;
    params.repetition_penalty = 1.1;
    params.frequency_penalty = 0.2;
    params.presence_penalty = 0.1;
    params.seed = 7;
    return params;
}

// Steps the scheduler and the executor's core by turns, on one thread.
class Engine {
 public:
    Engine(const model::GgufFile& file, const Cache& cache, const Circumstances& c)
        : backend_(make_backend(file, cache, c)),
          drafted_(c.drafted),
          stats_(backend_->info().slots_max),
          executor_(*backend_),
          scheduler_(settings(c), stats_) {}

    RequestId submit(Tokens prompt, model::DecodingParams params, std::uint32_t answer_index = 0) {
        Submit s;
        s.request = next_id_++;
        s.prompt = std::move(prompt);
        s.params = std::move(params);
        s.answer_index = answer_index;
        s.stop = runtime::StopFlag::make();
        messages_.push_back(std::move(s));
        return next_id_ - 1;
    }

    void run() {
        for (int turns = 0; turns < 20'000; ++turns) {
            scheduler_.step(clock_.now(), messages_, output_);
            messages_.clear();
            listen();
            REQUIRE(scheduler_.check_integrity() == "");
            if (output_.run) REQUIRE_FALSE(executor_.submit(std::move(*output_.run)).has_value());
            output_.run.reset();
            if (executor_.outstanding() > 0) {
                messages_.push_back(executor_.wait());
                // What costs nothing is worth a draft in every step.
                if (drafted_) std::get<StepDone>(messages_.back()).result->compute_ns = 0;
            } else if (scheduler_.live_count() == 0) {
                return;
            }
            clock_.advance_to(clock_.now() + std::chrono::milliseconds(1));
        }
        FAIL("the scheduler does not come to rest");
    }

    [[nodiscard]] const Answer& answer(RequestId id) {
        REQUIRE(answers_[id].ended);
        return answers_[id];
    }
    [[nodiscard]] std::uint64_t preemptions() const { return stats_.preemptions_total.get(); }
    [[nodiscard]] std::uint64_t hit_tokens() const { return stats_.prefix_hit_tokens_total.get(); }
    [[nodiscard]] std::uint64_t accepted_tokens() const {
        return stats_.accepted_tokens_total.get();
    }

 private:
    static cpu::CpuOptions options(const Cache& cache, const Circumstances& c) {
        cpu::CpuOptions options = test::small_options();
        options.kv_type = cache.kv_type;
        options.window = cache.window;
        options.context_length_max = 512;
        options.threads = c.neighbours ? 2 : 1;
        options.tokens_per_step_max = c.chunked ? 13 : 256;
        return options;
    }
    static std::unique_ptr<model::Backend> make_backend(const model::GgufFile& file,
                                                        const Cache& cache,
                                                        const Circumstances& c) {
        cpu::CpuOptions wanted = options(cache, c);
        auto target = test::make_backend(file, wanted);
        if (!c.drafted) return target;
        wanted.kv_pages = target->info().pages_total;
        wanted.tokens_per_step_max += wanted.slots_max;
        return std::make_unique<model::DraftingBackend>(std::move(target),
                                                        test::make_backend(file, wanted));
    }
    SchedulerSettings settings(const Circumstances& c) const {
        SchedulerSettings settings;
        settings.describe(backend_->info());
        settings.end_tokens = {2};
        settings.speculation.lookup = c.drafted;
        // Two and a half of the requests; with a window they take less.
        if (c.preempted) settings.pages_total = settings.window.bounded() ? 11 : 18;
        return settings;
    }

    void listen() {
        for (const Delivery& d : scheduler_.outbox().deliveries()) {
            for (const SessionEvent& event : d.events) {
                if (const auto* run = std::get_if<TokenRun>(&event)) {
                    for (std::uint32_t i = 0; i < run->count; ++i) {
                        const model::SampledToken& token = d.tokens[run->begin + i];
                        answers_[run->request].tokens.push_back(token.id);
                        answers_[run->request].logprob_bits.push_back(
                            std::bit_cast<std::uint32_t>(token.logprob));
                    }
                } else if (const auto* finished = std::get_if<Finished>(&event)) {
                    CHECK(finished->reason == FinishReason::length);
                    answers_[finished->request].ended = true;
                } else {
                    REQUIRE_FALSE(std::holds_alternative<Rejected>(event));
                }
            }
        }
    }

    runtime::VirtualClock clock_;
    std::unique_ptr<model::Backend> backend_;
    const bool drafted_;
    EngineStats stats_;
    Executor executor_;
    Scheduler scheduler_;
    SchedulerOutput output_;
    std::vector<SchedulerMessage> messages_;
    std::map<RequestId, Answer> answers_;
    RequestId next_id_ = 1;
};

// The answers of the three siblings; without siblings the first alone.
std::vector<Answer> answers_under(const model::GgufFile& file, const Cache& cache,
                                  const Circumstances& c, const model::DecodingParams& params,
                                  std::uint32_t first = 0) {
    Engine engine(file, cache, c);
    const Tokens prompt = prompt_of(kPromptTokens, 0);
    if (c.hit) {
        engine.submit(prompt, greedy());
        engine.run();
    }
    std::vector<RequestId> looked_at;
    const auto submit_neighbour = [&](std::uint32_t story) {
        model::DecodingParams other = story % 2 == 0 ? sampled() : greedy();
        other.seed = story;
        engine.submit(prompt_of(20 + 11 * story, story), std::move(other));
    };
    if (c.neighbours || c.preempted) submit_neighbour(1);
    for (std::uint32_t i = 0; i < (c.siblings ? 3U : 1U); ++i)
        looked_at.push_back(engine.submit(prompt, params, first + i));
    if (c.neighbours || c.preempted) {
        for (std::uint32_t story = 2; story < 6; ++story)
            submit_neighbour(story);
    }
    engine.run();
    // Behind a window as much goes back as comes: nobody has to go.
    if (c.preempted && !cache.window.bounded()) CHECK(engine.preemptions() > 0);
    CHECK((engine.accepted_tokens() > 0) == c.drafted);
    if (c.hit) CHECK(engine.hit_tokens() >= kPromptTokens / 16 * 16);
    std::vector<Answer> answers;
    for (const RequestId id : looked_at)
        answers.push_back(engine.answer(id));
    return answers;
}

void check_matrix(const model::DecodingParams& params, const Cache& cache = {}) {
    const model::GgufFile* file = test::stories_gguf();
    if (file == nullptr) return;
    std::vector<Answer> alone;
    for (std::uint32_t i = 0; i < 3; ++i)
        alone.push_back(answers_under(*file, cache, {}, params, i).front());
    REQUIRE(alone[0].tokens.size() == kAnswerTokens);
    CHECK((alone[0] == alone[1]) == (params.temperature == 0));
    for (unsigned mask = 1; mask < 64; ++mask) {
        const Circumstances c{.hit = (mask & 1U) != 0,
                              .chunked = (mask & 2U) != 0,
                              .preempted = (mask & 4U) != 0,
                              .neighbours = (mask & 8U) != 0,
                              .siblings = (mask & 16U) != 0,
                              .drafted = (mask & 32U) != 0};
        INFO(c.describe());
        const std::vector<Answer> answers = answers_under(*file, cache, c, params);
        for (std::size_t i = 0; i < answers.size(); ++i)
            CHECK(answers[i] == alone[i]);
    }
}

}  // namespace

TEST_CASE("a greedy answer is the same under all circumstances", "[sim][matrix]") {
    check_matrix(greedy());
}

TEST_CASE("a sampled answer is the same under all circumstances", "[sim][matrix]") {
    check_matrix(sampled());
}

TEST_CASE("so it is with every form of the KV cache", "[sim][matrix]") {
    check_matrix(sampled(), {.kv_type = GENERATE(cpu::KvType::int8, cpu::KvType::int4)});
}

TEST_CASE("so it is with a window that leaves most of the prompt behind", "[sim][matrix]") {
    check_matrix(sampled(), {.kv_type = cpu::KvType::int8, .window = {.tokens = 24, .sinks = 4}});
}
