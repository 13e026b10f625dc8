// troupe next: what the next token may be, step by step from the model's scores to the draw.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "model/sampler.hpp"
#include "runtime/base/log.hpp"
#include "tools/troupe/command.hpp"
#include "tools/troupe/decoding_flags.hpp"
#include "tools/troupe/model_loading.hpp"
#include "tools/troupe/prompt_tokens.hpp"
#include "tools/troupe/score_rows.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct NextFlags {
    BackendFlags backend;
    DecodingFlags decoding;
    std::string prompt;
    std::uint32_t count = 10;
    bool chat = false;
    bool as_json = false;
};

struct NextToken {
    std::size_t prompt_tokens = 0;
    std::vector<float> scores;  // one for each token of the vocabulary
    std::vector<model::DistributionStage> stages;
};

Result<NextToken> find_next(model::Backend& backend, std::span<const model::TokenId> tokens,
                            const model::DecodingParams& params,
                            std::span<const model::TokenId> end_tokens) {
    NextToken next;
    next.prompt_tokens = tokens.size();
    const auto keep = [&](std::uint32_t, std::span<const float> scores) {
        next.scores.assign(scores.begin(), scores.end());
    };
    if (auto done = score_rows(backend, tokens, 1, keep); !done) return done.error();
    model::TokenCounts counts;
    for (const model::TokenId id : tokens)
        counts.add_prompt(id);
    const model::SamplingContext context{.params = params,
                                         .counts = &counts,
                                         .end_tokens = end_tokens,
                                         .position = static_cast<std::uint32_t>(tokens.size())};
    auto stages = model::distribution_stages(next.scores, context);
    if (!stages)
        return Error{ErrorKind::invalid_input,
                     "no token may follow: the flags ban them all, or the scores are not finite"};
    next.stages = std::move(*stages);
    return next;
}

std::optional<double> probability_in(const model::DistributionStage& stage, model::TokenId id) {
    const auto found = std::find_if(stage.tokens.begin(), stage.tokens.end(),
                                    [id](const auto& token) { return token.id == id; });
    if (found == stage.tokens.end()) return std::nullopt;
    return found->probability;
}

std::size_t shown_of(const model::DistributionStage& stage, std::uint32_t count) {
    return std::min<std::size_t>(stage.tokens.size(), count);
}

// Rows of the table: what may be drawn by rank, then what the steps removed, likeliest first.
std::vector<model::TokenId> table_rows(const NextToken& next, std::uint32_t count) {
    std::vector<model::TokenId> rows;
    const auto add = [&](const model::DistributionStage& stage) {
        for (std::size_t i = 0; i < shown_of(stage, count) && rows.size() < count; ++i) {
            const model::TokenId id = stage.tokens[i].id;
            if (std::find(rows.begin(), rows.end(), id) == rows.end()) rows.push_back(id);
        }
    };
    add(next.stages.back());
    add(next.stages.front());
    return rows;
}

// Every column after the score is a distribution; "-" where a step has removed the token.
void print_table(const NextToken& next, const model::Tokenizer& tokenizer, std::uint32_t count) {
    fmt::print("{:<20} {:>7} {:>9}", "token", "id", "score");
    for (const auto& stage : next.stages)
        fmt::print(" {:>11}", stage.name == "scores" ? "softmax" : stage.name);
    fmt::print("\n");
    for (const model::TokenId id : table_rows(next, count)) {
        const std::string text =
            tokenizer.is_control(id)
                ? log::escaped(tokenizer.piece(id), 20)
                : fmt::format("\"{}\"", log::escaped(tokenizer.bytes_of(id), 18));
        fmt::print("{:<20} {:>7} {:>9.3f}", text, id, next.scores[static_cast<std::size_t>(id)]);
        for (const auto& stage : next.stages) {
            const auto p = probability_in(stage, id);
            fmt::print(" {:>11}", p ? fmt::format("{:.3f}", *p) : "-");
        }
        fmt::print("\n");
    }
}

json::array candidates_json(const model::DistributionStage& stage,
                            const model::Tokenizer& tokenizer, std::uint32_t count) {
    json::array out;
    for (std::size_t i = 0; i < shown_of(stage, count); ++i) {
        const auto& [id, probability] = stage.tokens[i];
        out.push_back({{"token", tokenizer.piece(id)}, {"id", id}, {"probability", probability}});
    }
    return out;
}

void print_json(const NextToken& next, const model::Tokenizer& tokenizer, std::uint32_t count) {
    json::array stages;
    for (const auto& stage : next.stages)
        stages.push_back(
            {{"name", stage.name}, {"candidates", candidates_json(stage, tokenizer, count)}});
    json::array candidates = candidates_json(next.stages.back(), tokenizer, count);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const auto id = static_cast<std::size_t>(next.stages.back().tokens[i].id);
        candidates[i].as_object()["logit"] = next.scores[id];
    }
    const json::object out{{"prompt_tokens", next.prompt_tokens},
                           {"stages", std::move(stages)},
                           {"candidates", std::move(candidates)}};
    std::printf("%s\n", json::serialize(out).c_str());
}

int show_next(NextFlags flags) {
    if (flags.prompt == "-") flags.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    const auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    const model::Tokenizer& tokenizer = *loaded->tokenizer;
    const auto params = decoding_params(flags.decoding, tokenizer.vocabulary_size());
    if (!params) return report(params.error());
    const auto tokens = prompt_tokens(*loaded, flags.prompt, flags.chat);
    if (!tokens) return report(tokens.error());
    const auto backend = make_backend(*loaded, flags.backend);
    if (!backend) return report(backend.error());
    const auto next = find_next(**backend, *tokens, *params, tokenizer.end_tokens());
    if (!next) return report(next.error());
    flags.as_json ? print_json(*next, tokenizer, flags.count)
                  : print_table(*next, tokenizer, flags.count);
    return exit_ok;
}

}  // namespace

void add_next(Command& app, Run& run) {
    auto command = app.add_subcommand("next", "Show what the next token may be, and why");
    const auto flags = std::make_shared<NextFlags>();
    flags->backend.running_max = 1;
    add_backend_flags(command, flags->backend);
    command.add("--prompt,-p", flags->prompt, "the text; - reads standard input").required();
    command.add_switch("--chat", flags->chat, "treat it as a message to an assistant");
    command.add("--count", flags->count, "tokens to show").within(1, 1 << 20).shows_default();
    command.add_switch("--json", flags->as_json, "print one JSON object");
    add_decoding_flags(command, flags->decoding);
    command.when_chosen([flags, &run] { run = [flags] { return show_next(*flags); }; });
}

}  // namespace troupe::tools
