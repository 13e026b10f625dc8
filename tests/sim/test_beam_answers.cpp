// Beam search on a real model, through scheduler, prefix cache and CPU backend: the answers of
// transformers (tests/data/beam_search), and the same bits in any company.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <vector>

#include "actors/executor.hpp"
#include "actors/scheduler.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/support/json_file.hpp"

namespace troupe::test {
namespace {

using actors::RequestId;
using Tokens = std::vector<model::TokenId>;

constexpr model::TokenId kEnd = 2;  // of stories260K

// Scheduler and backend on this thread, step by step.
class EngineScript {
 public:
    struct Heard {
        Tokens tokens;
        std::vector<float> logprobs;
        int finished = 0;
    };

    explicit EngineScript(model::Backend& backend)
        : stats_(backend.info().slots_max), executor_(backend) {
        actors::SchedulerSettings settings;
        settings.describe(backend.info());
        settings.end_tokens = {kEnd};
        scheduler_ = std::make_unique<actors::Scheduler>(settings, stats_);
    }

    RequestId submit(Tokens prompt, model::DecodingParams params, std::uint32_t answers = 1) {
        actors::Submit submit;
        submit.request = next_;
        submit.prompt = std::move(prompt);
        submit.params = std::move(params);
        submit.answers = answers;
        messages_.push_back(std::move(submit));
        next_ += answers;
        return next_ - answers;
    }
    void run() {
        actors::SchedulerOutput output;
        do {
            scheduler_->step(clock_.now(), messages_, output);
            messages_.clear();
            if (output.run) REQUIRE_FALSE(executor_.submit(std::move(*output.run)));
            output.run.reset();
            listen();
            REQUIRE(scheduler_->check_integrity() == "");
            if (executor_.outstanding() > 0) messages_.push_back(executor_.wait());
        } while (scheduler_->live_count() > 0 || !messages_.empty());
    }

    std::map<RequestId, Heard> heard;

 private:
    void listen() {
        for (const actors::Delivery& delivery : scheduler_->outbox().deliveries()) {
            for (const actors::SessionEvent& event : delivery.events) {
                if (const auto* run = std::get_if<actors::TokenRun>(&event)) {
                    for (std::uint32_t i = run->begin; i < run->begin + run->count; ++i) {
                        heard[run->request].tokens.push_back(delivery.tokens[i].id);
                        heard[run->request].logprobs.push_back(delivery.tokens[i].logprob);
                    }
                }
                if (const auto* end = std::get_if<actors::Finished>(&event))
                    ++heard[end->request].finished;
            }
        }
    }

    runtime::VirtualClock clock_;
    actors::EngineStats stats_;
    actors::Executor executor_;
    std::unique_ptr<actors::Scheduler> scheduler_;
    std::vector<actors::SchedulerMessage> messages_;
    RequestId next_ = 1;
};

struct Case {
    Tokens prompt;
    model::DecodingParams params;
    std::vector<Tokens> answers;  // without the token that ended them
};

std::vector<Case> reference_cases() {
    std::vector<Case> cases;
    const auto reference = read_json(test_data("beam_search/stories260k.json"));
    for (const auto& entry : reference.at("cases").as_array()) {
        Case& one = cases.emplace_back();
        one.prompt = to_vector<model::TokenId>(entry.at("prompt_ids"));
        one.params.beam_width = entry.at("beam_width").to_number<std::int32_t>();
        one.params.length_penalty = entry.at("length_penalty").to_number<double>();
        one.params.max_tokens = entry.at("max_tokens").to_number<std::int32_t>();
        const auto ends = to_vector<model::TokenId>(entry.at("ends"));
        for (const model::TokenId end : ends) {
            if (end != kEnd) one.params.stop_token_ids.push_back(end);
        }
        for (const auto& answer : entry.at("answers").as_array()) {
            Tokens tokens = to_vector<model::TokenId>(answer.at("tokens"));
            if (std::ranges::count(ends, tokens.back()) > 0) tokens.pop_back();
            one.answers.push_back(std::move(tokens));
        }
    }
    return cases;
}

TEST_CASE("beams on stories260K give the answers of transformers", "[sim][beams]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.arithmetic = cpu::Arithmetic::float32;
    const auto backend = make_backend(*file, options);
    EngineScript engine(*backend);
    const std::vector<Case> cases = reference_cases();
    REQUIRE(cases.size() == 28);
    std::vector<RequestId> ids;
    for (const Case& one : cases)  // all at once: they share steps, slots and pages
        ids.push_back(
            engine.submit(one.prompt, one.params, static_cast<std::uint32_t>(one.answers.size())));
    engine.run();
    for (std::size_t i = 0; i < cases.size(); ++i) {
        for (std::size_t answer = 0; answer < cases[i].answers.size(); ++answer) {
            CAPTURE(i, answer);
            CHECK(engine.heard[ids[i] + answer].tokens == cases[i].answers[answer]);
            CHECK(engine.heard[ids[i] + answer].finished == 1);
        }
    }
}

TEST_CASE("beams give the same bits alone and beside eight others", "[sim][beams]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    const auto backend = make_backend(*file, options);
    const Tokens prompt{1,   403, 407, 261, 378, 432, 383, 286, 261, 376,
                        268, 414, 422, 395, 405, 426, 9,   88,  403};
    model::DecodingParams beams;
    beams.beam_width = 5;
    beams.max_tokens = 60;
    EngineScript alone(*backend);
    const RequestId one = alone.submit(prompt, beams, 3);
    alone.run();
    EngineScript crowd(*backend);
    for (std::uint64_t i = 0; i < 8; ++i) {
        model::DecodingParams params;
        params.seed = i;
        params.max_tokens = static_cast<std::int32_t>(40 + i);
        crowd.submit(
            Tokens(static_cast<std::size_t>(3 + 9 * i), static_cast<model::TokenId>(300 + i)),
            params);
    }
    const RequestId among = crowd.submit(prompt, beams, 3);
    crowd.run();
    for (RequestId answer = 0; answer < 3; ++answer) {
        REQUIRE(alone.heard[one + answer].tokens.size() > 10);
        CHECK(crowd.heard[among + answer].tokens == alone.heard[one + answer].tokens);
        CHECK(crowd.heard[among + answer].logprobs == alone.heard[one + answer].logprobs);
    }
}

}  // namespace
}  // namespace troupe::test
