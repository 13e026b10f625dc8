#include "tools/troupe/speculation_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/troupe/local_engine.hpp"
#include "tools/troupe/model_loading.hpp"
#include "tools/troupe/prompt_tokens.hpp"
#include "tools/troupe/speculation_flags.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct SpeculationBenchFlags {
    BackendFlags backend;
    SpeculationFlags speculation;
    std::uint32_t tokens = 128;  // of each answer
    std::uint32_t pairs = 5;
    std::uint32_t streams = 1;  // requests at once, each with a seed of its own
    bool as_json = false;
};

// One kind of text: medians over the pairs.
struct SpeculationRow {
    std::string_view name;
    double plain_tokens_per_second = 0;  // of all streams together
    double drafted_tokens_per_second = 0;
    double ratio = 0;                   // median of the pairs' ratios
    std::uint32_t draft_tokens = 0;     // over all pairs
    std::uint32_t accepted_tokens = 0;  // of them
    bool equal = true;                  // every answer was the same with and without
};

// Copying a text, changing a piece of code, answering a question by chance.
struct Workload {
    std::string_view name;
    double temperature = 0;
    std::string_view prompt;
};

constexpr std::array kWorkloads{
    Workload{"copy", 0,
             "Repeat the following text word for word, and nothing else.\n\n"
             "The harbour lies at the end of a narrow bay. In the morning the fishing boats come "
             "back one after another, and the gulls follow them to the quay. Baskets of herring "
             "and cod are carried to the market hall, where the traders already wait. By noon the "
             "square is empty again; only the smell of salt and diesel stays until the evening, "
             "when the ferry from the islands arrives and the cafes along the water fill with "
             "people who have seen nothing but the sea all day."},
    Workload{"edit", 0,
             "Rewrite this Python code with the function renamed from total to add_prices. Keep "
             "everything else exactly as it is.\n\n"
             "def total(prices, tax_rate):\n"
             "    subtotal = 0.0\n"
             "    for price in prices:\n"
             "        if price < 0:\n"
             "            raise ValueError(\"a price is never negative\")\n"
             "        subtotal = subtotal + price\n"
             "    tax = subtotal * tax_rate\n"
             "    return round(subtotal + tax, 2)\n\n"
             "print(total([1.50, 2.25, 3.99], 0.19))\n"
             "print(total([10.00, 20.00], 0.07))\n"},
    Workload{"story", 1,
             "Tell me a long story about a clockmaker who finds a door in her cellar. Surprise me "
             "in every sentence."},
};

// Hears one request to its end.
class Listener final : public actors::SessionHandler {
 public:
    Listener(const model::Tokenizer& tokenizer, const model::DecodingParams& params)
        : generation(tokenizer, params) {}

    void on_event(const actors::SessionEvent& event, const actors::Delivery& delivery) override {
        if (const auto* run = std::get_if<actors::TokenRun>(&event)) {
            for (std::uint32_t i = 0; i < run->count; ++i)
                tokens.push_back(delivery.tokens[run->begin + i].id);
            generation.on(*run, delivery);
        }
        if (const auto* end = std::get_if<actors::Finished>(&event)) generation.on(*end);
        if (const auto* no = std::get_if<actors::Rejected>(&event)) generation.on(*no);
    }
    void on_delivered() override {}
    void on_shutdown() override {}

    actors::Generation generation;
    std::vector<model::TokenId> tokens;
};

struct Measured {
    double tokens_per_second = 0;
    std::uint32_t draft_tokens = 0;
    std::uint32_t accepted_tokens = 0;
    std::vector<std::vector<model::TokenId>> answers;
};

// All streams at once. The rate counts what comes after the first tokens: prompts are not drafted.
Result<Measured> run_once(LocalEngine& engine, const LoadedModel& loaded, const Workload& workload,
                          const SpeculationBenchFlags& bench, bool speculation) {
    auto prompt = prompt_tokens(loaded, workload.prompt, true);
    if (!prompt) return prompt.error();
    model::DecodingParams params;
    params.temperature = workload.temperature;
    params.ignore_eos = true;
    params.max_tokens = static_cast<std::int32_t>(bench.tokens);
    params.speculation = speculation;
    std::vector<std::unique_ptr<Listener>> listeners;
    for (std::uint32_t i = 0; i < bench.streams; ++i) {
        params.seed = i;
        listeners.push_back(std::make_unique<Listener>(*loaded.tokenizer, params));
        engine.submit(*listeners.back(), *prompt, params);
    }
    Measured run;
    std::int64_t longest_ns = 0;
    std::uint32_t decoded = 0;
    for (const auto& listener : listeners) {
        const actors::Generation& answer = listener->generation;
        while (!answer.ended())
            engine.run_one();
        if (answer.error()) return invalid_input(answer.error()->message);
        longest_ns = std::max(longest_ns, answer.timings().decode_ns);
        decoded += answer.usage().generated_tokens - 1;
        run.draft_tokens += answer.usage().draft_tokens;
        run.accepted_tokens += answer.usage().accepted_tokens;
        run.answers.push_back(listener->tokens);
    }
    run.tokens_per_second = decoded * 1e9 / static_cast<double>(longest_ns);
    return run;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

Result<std::vector<SpeculationRow>> measure_speculation(
    const LoadedModel& loaded, model::Backend& backend,
    const actors::SpeculationSettings& speculation, const SpeculationBenchFlags& bench) {
    LocalEngine engine(loaded, backend, speculation);
    std::vector<SpeculationRow> rows;
    for (const Workload& workload : kWorkloads) {
        SpeculationRow& row = rows.emplace_back();
        row.name = workload.name;
        std::vector<double> plain_rates, drafted_rates, ratios;
        for (std::uint32_t pair = 0; pair <= bench.pairs; ++pair) {
            const auto plain = run_once(engine, loaded, workload, bench, false);
            if (!plain) return plain.error();
            const auto drafted = run_once(engine, loaded, workload, bench, true);
            if (!drafted) return drafted.error();
            row.equal = row.equal && plain->answers == drafted->answers;
            if (pair == 0) continue;  // fills the cache, and teaches the engine what steps cost
            plain_rates.push_back(plain->tokens_per_second);
            drafted_rates.push_back(drafted->tokens_per_second);
            ratios.push_back(drafted->tokens_per_second / plain->tokens_per_second);
            row.draft_tokens += drafted->draft_tokens;
            row.accepted_tokens += drafted->accepted_tokens;
        }
        row.plain_tokens_per_second = median(plain_rates);
        row.drafted_tokens_per_second = median(drafted_rates);
        row.ratio = median(ratios);
    }
    return rows;
}

int bench_speculation(const SpeculationBenchFlags& flags) {
    auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    const auto speculation = prepare_speculation(flags.speculation, *loaded);
    if (!speculation) return report(speculation.error());
    const auto backend = make_backend(*loaded, flags.backend);
    if (!backend) return report(backend.error());
    const auto rows = measure_speculation(*loaded, **backend, *speculation, flags);
    if (!rows) return report(rows.error());
    if (flags.as_json) {
        json::object texts;
        for (const auto& row : *rows)
            texts[row.name] = json::object{{"plain", row.plain_tokens_per_second},
                                           {"drafted", row.drafted_tokens_per_second},
                                           {"ratio", row.ratio},
                                           {"draft_tokens", row.draft_tokens},
                                           {"accepted_tokens", row.accepted_tokens},
                                           {"equal", row.equal}};
        const json::object out{{"model", loaded->id},
                               {"streams", flags.streams},
                               {"tokens", flags.tokens},
                               {"pairs", flags.pairs},
                               {"texts", std::move(texts)}};
        std::printf("%s\n", json::serialize(out).c_str());
        return exit_ok;
    }
    fmt::print("tokens/s of {} stream(s), {} tokens each, medians of {} pairs\n", flags.streams,
               flags.tokens, flags.pairs);
    for (const auto& row : *rows)
        fmt::print(
            "  {:<6} {:>8.1f} without drafts {:>8.1f} with: x {:.2f}  ({} of {} tokens "
            "accepted, answers {})\n",
            row.name, row.plain_tokens_per_second, row.drafted_tokens_per_second, row.ratio,
            row.accepted_tokens, row.draft_tokens, row.equal ? "equal" : "DIFFERENT");
    return exit_ok;
}

}  // namespace

void add_speculation_bench(Command& bench, Run& run) {
    const auto flags = std::make_shared<SpeculationBenchFlags>();
    auto speculation =
        bench.add_subcommand("speculation", "The same answers with and without drafts, in turn");
    add_backend_flags(speculation, flags->backend);
    add_speculation_flags(speculation, flags->speculation);
    speculation.add("--streams", flags->streams, "requests at once").positive();
    speculation.add("--tokens", flags->tokens, "of each answer").within(2, 1 << 20);
    speculation.add("--pairs", flags->pairs, "so many times with and without").positive();
    speculation.add_switch("--json", flags->as_json, "print one JSON object");
    speculation.when_chosen([flags, &run] { run = [flags] { return bench_speculation(*flags); }; });
}

}  // namespace troupe::tools
