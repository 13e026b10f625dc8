#include "tools/troupe/sharing_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "tools/troupe/local_engine.hpp"
#include "tools/troupe/model_loading.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct SharingFlags {
    BackendFlags backend;
    std::uint32_t answers = 8;
    std::uint32_t prompt_tokens = 1500;
    std::uint32_t answer_tokens = 64;
    bool as_json = false;
};

class EndWatcher final : public actors::SessionHandler {
 public:
    void on_event(const actors::SessionEvent& event, const actors::Delivery&) override {
        if (const auto* no = std::get_if<actors::Rejected>(&event)) rejected = no->message;
        ended |= std::holds_alternative<actors::Finished>(event) || !rejected.empty();
    }
    void on_delivered() override {}
    void on_shutdown() override {}

    std::string rejected;
    bool ended = false;
};

struct Load {
    std::vector<model::TokenId> prompt;
    model::DecodingParams params;
    std::uint32_t requests = 1;
    bool strangers = false;  // each under a salt of its own
};

// Runs the load to its end on an engine of its own.
Result<std::uint32_t> most_pages(const LoadedModel& loaded, model::Backend& backend,
                                 const Load& load) {
    LocalEngine engine(loaded, backend);
    std::vector<EndWatcher> watchers(load.requests);
    for (std::uint32_t i = 0; i < load.requests; ++i) {
        engine.submit(watchers[i], load.prompt, load.params, runtime::StopFlag::make(),
                      {.answer_index = i, .cache_salt = load.strangers ? i : 0});
    }
    while (!std::ranges::all_of(watchers, &EndWatcher::ended))
        engine.run_one();
    for (const EndWatcher& watcher : watchers) {
        if (!watcher.rejected.empty()) return invalid_input(watcher.rejected);
    }
    return engine.stats().kv_pages_leased_max.get();
}

// The most pages that were held at a time.
struct Sharing {
    std::uint32_t separate = 0;  // requests of different principals
    std::uint32_t answers = 0;   // n
    std::uint32_t beams = 0;     // beam_width
};

Result<Sharing> measure(const LoadedModel& loaded, model::Backend& backend,
                        const SharingFlags& flags) {
    Load load;
    Random random(1);
    const auto vocabulary = static_cast<std::uint64_t>(loaded.tokenizer->vocabulary_size());
    for (std::uint32_t i = 0; i < flags.prompt_tokens; ++i)
        load.prompt.push_back(static_cast<model::TokenId>(random.below(vocabulary)));
    load.params.ignore_eos = true;
    load.params.max_tokens = static_cast<std::int32_t>(flags.answer_tokens);

    load.requests = flags.answers;
    load.strangers = true;
    const auto separate = most_pages(loaded, backend, load);
    if (!separate) return separate.error();
    load.strangers = false;
    const auto answers = most_pages(loaded, backend, load);
    if (!answers) return answers.error();
    load.requests = 1;
    load.params.beam_width = static_cast<std::int32_t>(flags.answers);
    const auto beams = most_pages(loaded, backend, load);
    if (!beams) return beams.error();
    return Sharing{*separate, *answers, *beams};
}

int bench_sharing(const SharingFlags& flags) {
    const auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    const auto backend = make_backend(*loaded, flags.backend);
    if (!backend) return report(backend.error());
    const auto pages = measure(*loaded, **backend, flags);
    if (!pages) return report(pages.error());
    const std::uint64_t page_bytes = (*backend)->info().kv_bytes_per_token * model::kPageTokens;
    if (flags.as_json) {
        const json::object out{{"model", loaded->id},
                               {"answers", flags.answers},
                               {"prompt_tokens", flags.prompt_tokens},
                               {"answer_tokens", flags.answer_tokens},
                               {"page_bytes", page_bytes},
                               {"pages",
                                {{"separate", pages->separate},
                                 {"answers", pages->answers},
                                 {"beams", pages->beams}}}};
        std::printf("%s\n", json::serialize(out).c_str());
        return exit_ok;
    }
    fmt::print("{} answers of {} tokens to a prompt of {}: the most KV memory held at a time\n",
               flags.answers, flags.answer_tokens, flags.prompt_tokens);
    const auto line = [&](const std::string& name, std::uint32_t count) {
        fmt::print("  {:<22} {:>6} pages  {:>8.1f} MiB\n", name, count,
                   static_cast<double>(count * page_bytes) / 0x1p20);
    };
    line("requests of strangers", pages->separate);
    line(fmt::format("n = {}", flags.answers), pages->answers);
    line(fmt::format("beam_width = {}", flags.answers), pages->beams);
    return exit_ok;
}

}  // namespace

void add_sharing_bench(Command& bench, Run& run) {
    const auto flags = std::make_shared<SharingFlags>();
    auto sharing = bench.add_subcommand("sharing", "KV memory of several answers to one prompt");
    add_backend_flags(sharing, flags->backend);
    sharing.add("--answers", flags->answers, "n, and the width of the beams").within(2, 16);
    sharing.add("--prompt-tokens", flags->prompt_tokens, "length of the prompt");
    sharing.add("--answer-tokens", flags->answer_tokens, "length of each answer");
    sharing.add_switch("--json", flags->as_json, "print one JSON object");
    sharing.when_chosen([flags, &run] { run = [flags] { return bench_sharing(*flags); }; });
}

}  // namespace troupe::tools
