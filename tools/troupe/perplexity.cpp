// troupe perplexity: how well a model predicts a text; exp of the mean of -ln p over its tokens.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "model/math.hpp"
#include "tools/troupe/command.hpp"
#include "tools/troupe/model_loading.hpp"
#include "tools/troupe/score_rows.hpp"

namespace troupe::tools {
namespace {

struct PerplexityFlags {
    BackendFlags backend;
    std::string file;
    std::string text;
    std::uint32_t context = 512;
    bool all_forms = false;
    bool as_json = false;
};

struct Loss {
    double sum = 0;  // of -ln p, natural
    std::uint64_t tokens = 0;

    [[nodiscard]] double mean() const { return sum / static_cast<double>(tokens); }
};

Result<std::string> read_text(const PerplexityFlags& flags) {
    if (flags.file.empty()) return flags.text;
    if (flags.file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
    std::error_code failed;
    const auto size = std::filesystem::file_size(flags.file, failed);
    if (failed)
        return Error{ErrorKind::io,
                     fmt::format("cannot read {}: {}", flags.file, failed.message())};
    std::ifstream in(flags.file, std::ios::binary);
    std::string text(size, '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(size)))
        return Error{ErrorKind::io, fmt::format("cannot read {}", flags.file)};
    return text;
}

// -ln of the probability that the softmax of `scores` gives to `id`.
double surprise(std::span<const float> scores, model::TokenId id) {
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const float score : scores)
        sum += model::math::exp(score - max);
    return max + model::math::log(sum) - scores[static_cast<std::size_t>(id)];
}

// One stretch from an empty cache: all its tokens but the first, which nothing precedes.
Result<Loss> stretch_loss(model::Backend& backend, std::span<const model::TokenId> stretch) {
    const auto scored = static_cast<std::uint32_t>(stretch.size() - 1);
    Loss loss{0, scored};
    const auto add = [&](std::uint32_t position, std::span<const float> scores) {
        loss.sum += surprise(scores, stretch[position + 1]);
    };
    if (auto done = score_rows(backend, stretch.first(scored), scored, add); !done)
        return done.error();
    return loss;
}

// Stretches [0, C), [C, 2C), ... of the text; a last one of a single token has nothing to score.
Result<Loss> text_loss(model::Backend& backend, std::span<const model::TokenId> tokens,
                       std::uint32_t context) {
    const bool person = isatty(STDERR_FILENO) != 0;
    Loss total;
    for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += context) {
        const std::size_t length = std::min<std::size_t>(context, tokens.size() - begin);
        const auto loss = stretch_loss(backend, tokens.subspan(begin, length));
        if (!loss) return loss.error();
        total.sum += loss->sum;
        total.tokens += loss->tokens;
        if (person)
            fmt::print(stderr, "\r{} of {} tokens, loss {:.4f}", begin + length, tokens.size(),
                       total.mean());
    }
    if (person) fmt::print(stderr, "\r\033[K");
    return total;
}

// What a text costs with one form of the KV cache.
struct Price {
    std::string kv_type;
    std::uint64_t kv_bytes_per_token = 0;
    Loss loss;

    [[nodiscard]] double perplexity() const { return model::math::exp(loss.mean()); }
};

Result<Price> measure(const LoadedModel& loaded, const BackendFlags& flags,
                      std::span<const model::TokenId> tokens, std::uint32_t context) {
    const auto backend = make_backend(loaded, flags);
    if (!backend) return backend.error();
    const auto loss = text_loss(**backend, tokens, context);
    if (!loss) return loss.error();
    const model::BackendInfo& info = (*backend)->info();
    Price price{info.kv_type, info.kv_bytes_per_token, *loss};
    if (!std::isfinite(price.perplexity()))
        return Error{ErrorKind::internal, "the model gave scores that are not finite"};
    return price;
}

int print_price(const Price& price, bool as_json) {
    if (as_json) {
        const boost::json::object out{{"loss", price.loss.mean()},
                                      {"perplexity", price.perplexity()},
                                      {"tokens", price.loss.tokens}};
        std::printf("%s\n", boost::json::serialize(out).c_str());
    } else {
        fmt::print("mean loss {:.4f}, perplexity {:.3f} over {} tokens\n", price.loss.mean(),
                   price.perplexity(), price.loss.tokens);
    }
    return exit_ok;
}

// Every form of the cache by turns; the differences are to f16.
int compare_forms(const PerplexityFlags& flags, const LoadedModel& loaded,
                  std::span<const model::TokenId> tokens) {
    std::vector<Price> prices;
    for (const char* form : {"f16", "f32", "int8", "int4"}) {
        BackendFlags backend = flags.backend;
        backend.kv_type = form;
        auto price = measure(loaded, backend, tokens, flags.context);
        if (!price) return report(price.error());
        prices.push_back(std::move(*price));
    }
    const double base = prices.front().perplexity();
    const auto percent = [&](const Price& price) { return 100 * (price.perplexity() / base - 1); };
    if (flags.as_json) {
        boost::json::array forms;
        for (const Price& price : prices)
            forms.push_back(boost::json::object{{"kv", price.kv_type},
                                                {"kv_bytes_per_token", price.kv_bytes_per_token},
                                                {"loss", price.loss.mean()},
                                                {"perplexity", price.perplexity()},
                                                {"percent", percent(price)}});
        const boost::json::object out{{"forms", std::move(forms)},
                                      {"tokens", prices.front().loss.tokens}};
        std::printf("%s\n", boost::json::serialize(out).c_str());
        return exit_ok;
    }
    fmt::print("{:<5} {:>12} {:>12} {:>11}\n", "KV", "bytes/token", "perplexity", "to f16");
    for (const Price& price : prices)
        fmt::print("{:<5} {:>12} {:>12.4f} {:>+9.2f} %\n", price.kv_type, price.kv_bytes_per_token,
                   price.perplexity(), percent(price));
    return exit_ok;
}

int perplexity(const PerplexityFlags& flags) {
    const auto text = read_text(flags);
    if (!text) return report(text.error());
    const auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    std::vector<model::TokenId> tokens;
    loaded->tokenizer->encode(*text, tokens);
    if (tokens.size() < 2)
        return report(invalid_input(
            fmt::format("the text holds {} tokens: give one of at least 2", tokens.size())));
    if (flags.all_forms) {
        if (!loaded->file)
            return report(invalid_input("the toy has no KV cache: leave --kv-forms out"));
        return compare_forms(flags, *loaded, tokens);
    }
    const auto price = measure(*loaded, flags.backend, tokens, flags.context);
    return price ? print_price(*price, flags.as_json) : report(price.error());
}

}  // namespace

void add_perplexity(CLI::App& app, Run& run) {
    auto* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
    const auto flags = std::make_shared<PerplexityFlags>();
    flags->backend.running_max = 1;
    add_backend_flags(*command, flags->backend);
    auto* source = command->add_option_group("Text", "what to predict; one of these");
    source->add_option("--file,-f", flags->file, "a text file; - reads standard input");
    source->add_option("--text", flags->text, "the text itself");
    source->require_option(1);
    command
        ->add_option("--context", flags->context,
                     "tokens that are computed together, each stretch without those before it")
        ->check(CLI::Range(2U, 1U << 20))
        ->capture_default_str();
    command->add_flag("--kv-forms", flags->all_forms,
                      "measure with every form of the KV cache, and what each costs");
    command->add_flag("--json", flags->as_json, "print one JSON object");
    command->callback([flags, &run] { run = [flags] { return perplexity(*flags); }; });
}

}  // namespace troupe::tools
