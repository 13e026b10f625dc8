// troupe complete: continues a text.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "runtime/base/log.hpp"
#include "tools/troupe/answer_json.hpp"
#include "tools/troupe/command.hpp"
#include "tools/troupe/decoding_flags.hpp"
#include "tools/troupe/local_engine.hpp"
#include "tools/troupe/prompt_tokens.hpp"
#include "tools/troupe/speculation_flags.hpp"

namespace troupe::tools {
namespace {

struct CompleteFlags {
    BackendFlags backend;
    SpeculationFlags speculation;
    DecodingFlags decoding;
    std::string prompt;
    std::uint32_t best_of = 1;
    bool chat = false;
    bool as_json = false;
};

// One answer as it grows, or the best of several when all are there.
actors::Generation generate(LocalEngine& engine, const std::vector<model::TokenId>& prompt,
                            const model::DecodingParams& params, const CompleteFlags& flags) {
    const auto show = [&](std::string_view text) {
        if (flags.as_json) return;
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    };
    if (flags.best_of == 1) return engine.generate(prompt, params, show);
    actors::Generation best = engine.generate_best(prompt, params, flags.best_of);
    show(best.text());
    return best;
}

int complete(CompleteFlags flags) {
    if (flags.prompt == "-") flags.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    const auto speculation = prepare_speculation(flags.speculation, *loaded);
    if (!speculation) return report(speculation.error());
    const auto params = decoding_params(flags.decoding, loaded->tokenizer->vocabulary_size());
    if (!params) return report(params.error());
    if (flags.best_of > 1 && params->beams())
        return report(invalid_input("--best-of ranks draws, --beam-width makes none: give one"));
    const auto tokens = prompt_tokens(*loaded, flags.prompt, flags.chat);
    if (!tokens) return report(tokens.error());
    const auto backend = make_backend(*loaded, flags.backend);
    if (!backend) return report(backend.error());

    LocalEngine engine(*loaded, **backend, *speculation);
    const auto answer = generate(engine, *tokens, *params, flags);
    if (answer.error()) return report(Error{ErrorKind::invalid_input, answer.error()->message});
    if (flags.as_json) {
        std::printf(
            "%s\n",
            boost::json::serialize(answer_json(answer, *params, *loaded->tokenizer)).c_str());
        return exit_ok;
    }
    std::printf("\n");
    if (!flags.decoding.seed && !params->greedy()) log::debug("seed {}", params->seed);
    return exit_ok;
}

}  // namespace

void add_complete(Command& app, Run& run) {
    auto command = app.add_subcommand("complete", "Continue a text");
    const auto flags = std::make_shared<CompleteFlags>();
    add_backend_flags(command, flags->backend);
    add_speculation_flags(command, flags->speculation);
    command.add("--prompt,-p", flags->prompt, "the text; - reads standard input").required();
    command
        .add("--best-of", flags->best_of,
             "make so many answers, show the one with the best mean log-probability")
        .within(1, 20);
    command.add_switch("--chat", flags->chat, "treat it as a message to an assistant");
    command.add_switch("--json", flags->as_json, "print one JSON object at the end");
    add_decoding_flags(command, flags->decoding);
    command.when_chosen([flags, &run] { run = [flags] { return complete(*flags); }; });
}

}  // namespace troupe::tools
