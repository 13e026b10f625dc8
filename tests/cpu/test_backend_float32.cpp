// Float32 arithmetic against independent implementations (../shared/data/7-smollm2), from the
// embedding to whole greedy texts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/npy.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string kFolder = "7-smollm2/";

cpu::CpuOptions float32_options() {
    cpu::CpuOptions options = small_options();
    options.arithmetic = cpu::Arithmetic::float32;
    return options;
}

using Rows = std::vector<std::vector<float>>;

// "layer0-q", "embd", ... -> rows, of everything that passed by.
class TapRecorder {
 public:
    cpu::TapFunction function() {
        return [this](const cpu::Tap& tap) {
            Rows rows;
            for (std::size_t i = 0; i < tap.rows; ++i) {
                const float* const row = tap.values + i * tap.stride;
                rows.emplace_back(row, row + tap.columns);
            }
            const bool whole = tap.name == "embd" || tap.name == "final-norm";
            const std::string layer = "layer" + std::to_string(tap.layer) + "-";
            taps_[(whole ? "" : layer) + std::string(tap.name)] = std::move(rows);
        };
    }
    [[nodiscard]] const Rows& operator[](const std::string& name) const { return taps_.at(name); }

 private:
    std::map<std::string, Rows> taps_;
};

// The tolerance of the data's README: relative to the largest value of the row.
void require_close(const std::vector<float>& actual, std::span<const float> expected,
                   const std::string& what) {
    CAPTURE(what);
    REQUIRE(actual.size() == expected.size());
    float largest = 0;
    float worst = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        worst = std::max(worst, std::abs(actual[i] - expected[i]));
    }
    REQUIRE(worst <= 1e-5F * largest + 1e-5F);
}

}  // namespace

TEST_CASE("float32 hidden states agree at every stage of the model", "[cpu][backend]") {
    const model::GgufFile* file = default_gguf();
    if (file == nullptr || !have_shared(kFolder + "hidden/index.json")) return;
    TapRecorder taps;
    cpu::CpuOptions options = float32_options();
    options.tap = taps.function();
    const auto backend = make_backend(*file, options);
    EngineDriver driver(*backend);
    const auto index = read_json(shared_data(kFolder + "hidden/index.json"));
    driver.open(0);
    driver.prefill(0, to_vector<model::TokenId>(index.at("ids")), 16);

    std::size_t compared = 0;
    for (const auto& entry : index.at("arrays").as_array()) {
        const std::string name(entry.at("file").as_string().c_str());
        const NpyArray expected = read_npy(shared_data(kFolder + "hidden/" + name));
        const std::string stage = name.substr(0, name.size() - 4);
        // Both are added to the residual in one pass with their product: the sums are compared.
        if (stage == "layer0-attn-out" || stage == "layer0-ffn-down") continue;
        ++compared;
        if (stage == "residual-last-position") {
            require_close(taps["embd"].back(), expected.row(0), stage + " 0");
            for (std::uint32_t block = 0; block < 30; ++block) {
                const std::string layer = "layer" + std::to_string(block) + "-out";
                require_close(taps[layer].back(), expected.row(block + 1), stage + " " + layer);
            }
            require_close(taps["final-norm"].back(), expected.row(31), stage + " 31");
            continue;
        }
        const Rows& rows = taps[stage];
        REQUIRE(rows.size() == expected.shape.at(0));
        for (std::size_t row = 0; row < rows.size(); ++row) {
            require_close(rows[row], expected.row(row), stage + " row " + std::to_string(row));
        }
    }
    REQUIRE(compared == 15);
}

TEST_CASE("float32 scores agree after every prompt", "[cpu][backend]") {
    const model::GgufFile* file = default_gguf();
    if (file == nullptr || !have_shared(kFolder + "logits.json")) return;
    const auto backend = make_backend(*file, float32_options());
    const auto vocabulary = static_cast<std::size_t>(backend->info().vocabulary_size);
    const NpyArray last = read_npy(shared_data(kFolder + "logits-last.npy"));
    const auto reference = read_json(shared_data(kFolder + "logits.json"));
    std::size_t row = 0;
    for (const auto& entry : reference.at("cases").as_array()) {
        CAPTURE(entry.at("name").as_string().c_str());
        const auto ids = to_vector<model::TokenId>(entry.at("ids"));
        const auto best = to_vector<std::size_t>(entry.at("argmax"));
        const auto next_logprob = to_vector<double>(entry.at("next_logprob"));
        EngineDriver driver(*backend);
        driver.open(0);
        const std::vector<float> logits =
            driver.prefill(0, ids, static_cast<std::uint32_t>(ids.size()));
        REQUIRE(logits.size() == ids.size() * vocabulary);
        double worst_logprob = 0;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const std::span scores = std::span(logits).subspan(i * vocabulary, vocabulary);
            REQUIRE(argmax(scores) == best[i]);
            if (i + 1 == ids.size()) break;
            const double logprob = scores[static_cast<std::size_t>(ids[i + 1])] - logsumexp(scores);
            worst_logprob = std::max(worst_logprob, std::abs(logprob - next_logprob[i]));
        }
        CHECK(worst_logprob < 1e-3);

        const std::span scores = std::span(logits).last(vocabulary);
        double worst = 0;
        for (std::size_t i = 0; i < vocabulary; ++i) {
            worst = std::max(worst, std::abs(double{scores[i]} - last.row(row)[i]));
        }
        CHECK(worst < 1e-3);
        CHECK(std::abs(logsumexp(scores) - entry.at("last_logsumexp").to_number<double>()) < 1e-3);
        for (const auto& pair : entry.at("last_top20").as_array()) {
            const float score = scores[pair.at(0).to_number<std::size_t>()];
            CHECK(std::abs(score - pair.at(1).to_number<double>()) < 1e-3);
        }
        driver.close(0);
        driver.run();
        ++row;
    }
    REQUIRE(row == last.shape.at(0));
}

TEST_CASE("float32 arithmetic gives all reference greedy texts, id by id", "[cpu][backend][long]") {
    const model::GgufFile* file = default_gguf();
    if (file == nullptr || !have_shared(kFolder + "greedy.json")) return;
    const auto backend = make_backend(*file, float32_options());
    EngineDriver driver(*backend);
    const auto reference = read_json(shared_data(kFolder + "greedy.json"));
    const auto& cases = reference.at("cases").as_array();
    // All texts at once, a token of each a step.
    std::vector<Tokens> ids(cases.size());
    for (model::SlotId slot = 0; slot < cases.size(); ++slot) {
        driver.open(slot);
        driver.prefill(slot, to_vector<model::TokenId>(cases[slot].at("prompt_ids")));
        ids[slot].push_back(driver.result().sampled.back().id);
    }
    while (ids.front().size() < 64) {
        for (model::SlotId slot = 0; slot < cases.size(); ++slot)
            driver.add_drawn(slot);
        driver.run();
        for (std::size_t i = 0; i < cases.size(); ++i) {
            ids[i].push_back(driver.result().sampled[i].id);
        }
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
        CAPTURE(i);
        CHECK(ids[i] == to_vector<model::TokenId>(cases[i].at("ids")));
    }
}
