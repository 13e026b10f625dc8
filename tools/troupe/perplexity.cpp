// troupe perplexity: how well a model predicts a text; exp of the mean of -ln p over its tokens.
// With --kv-forms, for every form of the KV cache; with --compare, also how far the chosen
// arithmetic is from float32.
#include <fmt/format.h>
#include <unistd.h>

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
#include <optional>

#include "model/math.hpp"
#include "tools/troupe/command.hpp"
#include "tools/troupe/fidelity.hpp"
#include "tools/troupe/model_loading.hpp"
#include "tools/troupe/score_rows.hpp"

namespace troupe::tools {
namespace {

struct PerplexityFlags {
    BackendFlags backend;
    std::string file;
    std::string text;
    std::uint32_t context = 512;
    bool compare = false;
    bool all_forms = false;
    bool as_json = false;
};

struct Loss {
    double sum = 0;  // of -ln p, natural
    std::uint64_t tokens = 0;

    [[nodiscard]] double mean() const { return sum / static_cast<double>(tokens); }
};

// Of a text: with the arithmetic asked for, and, where that is compared, with float32.
struct TextLoss {
    Loss loss;
    Loss float32;
    Fidelity fidelity;
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
    return log_sum_exp(scores) - scores[static_cast<std::size_t>(id)];
}

// What the model wants before any text, as in a prompt.
std::optional<model::TokenId> first_token(const model::Tokenizer& tokenizer) {
    return tokenizer.add_bos() ? tokenizer.bos() : std::nullopt;
}

// One stretch from an empty cache: all its tokens but the first, which nothing precedes. `on_row`
// is called for each row that is scored.
Result<> add_stretch(model::Backend& backend, std::span<const model::TokenId> stretch, Loss& loss,
                     const RowFunction& on_row) {
    const auto scored = static_cast<std::uint32_t>(stretch.size() - 1);
    const auto add = [&](std::uint32_t position, std::span<const float> scores) {
        loss.sum += surprise(scores, stretch[position + 1]);
        ++loss.tokens;
        on_row(position, scores);
    };
    return score_rows(backend, stretch.first(scored), scored, add);
}

// Both arithmetics on one stretch; float32 goes first and its scores are kept meanwhile.
Result<> compare_stretch(model::Backend& backend, model::Backend& exact,
                         std::span<const model::TokenId> stretch, TextLoss& total) {
    std::vector<float> kept;  // [scored][vocabulary]
    const auto keep = [&](std::uint32_t, std::span<const float> scores) {
        kept.insert(kept.end(), scores.begin(), scores.end());
    };
    if (auto done = add_stretch(exact, stretch, total.float32, keep); !done) return done;
    const auto compare = [&](std::uint32_t position, std::span<const float> scores) {
        const auto reference =
            std::span<const float>(kept).subspan(position * scores.size(), scores.size());
        total.fidelity.add(row_distance(reference, scores));
    };
    return add_stretch(backend, stretch, total.loss, compare);
}

// Stretches [0, C), [C, 2C), ... of the text, each behind `first` if the model wants it; if not, a
// last one of a single token has nothing to score. `exact` is null where nothing is compared.
Result<TextLoss> text_loss(model::Backend& backend, model::Backend* exact,
                           std::span<const model::TokenId> tokens,
                           std::optional<model::TokenId> first, std::uint32_t context) {
    const bool person = isatty(STDERR_FILENO) != 0;
    const std::size_t unscored = first ? 0 : 1;
    TextLoss total;
    for (std::size_t begin = 0; begin + unscored < tokens.size(); begin += context) {
        const std::size_t length = std::min<std::size_t>(context, tokens.size() - begin);
        const auto part = tokens.subspan(begin, length);
        std::vector<model::TokenId> stretch;
        if (first) stretch.push_back(*first);
        stretch.insert(stretch.end(), part.begin(), part.end());
        const auto done = exact != nullptr
                              ? compare_stretch(backend, *exact, stretch, total)
                              : add_stretch(backend, stretch, total.loss, [](auto, auto) {});
        if (!done) return done.error();
        if (person)
            fmt::print(stderr, "\r{} of {} tokens, loss {:.4f}", begin + length, tokens.size(),
                       total.loss.mean());
    }
    if (person) fmt::print(stderr, "\r\033[K");
    return total;
}

// What a text costs with one form of the KV cache.
struct Price {
    std::string kv_type;
    std::uint64_t kv_bytes_per_token = 0;
    TextLoss text;

    [[nodiscard]] double perplexity() const { return model::math::exp(text.loss.mean()); }
};

Result<Price> measure(const LoadedModel& loaded, const PerplexityFlags& flags,
                      const BackendFlags& backend_flags, std::span<const model::TokenId> tokens) {
    const auto backend = make_backend(loaded, backend_flags);
    if (!backend) return backend.error();
    std::unique_ptr<model::Backend> exact;
    if (flags.compare) {
        BackendFlags exact_flags = backend_flags;
        exact_flags.arithmetic = "float32";
        auto made = make_backend(loaded, exact_flags);
        if (!made) return made.error();
        exact = std::move(*made);
    }
    auto text =
        text_loss(**backend, exact.get(), tokens, first_token(*loaded.tokenizer), flags.context);
    if (!text) return text.error();
    const model::BackendInfo& info = (*backend)->info();
    Price price{info.kv_type, info.kv_bytes_per_token, std::move(*text)};
    if (!std::isfinite(price.perplexity()))
        return Error{ErrorKind::internal, "the model gave scores that are not finite"};
    return price;
}

void print_text(const Price& price) {
    const TextLoss& text = price.text;
    fmt::print("mean loss {:.4f}, perplexity {:.3f} over {} tokens\n", text.loss.mean(),
               price.perplexity(), text.loss.tokens);
    if (text.fidelity.rows == 0) return;
    fmt::print(
        "float32: mean loss {:.4f}; KL(float32 || this) {:.6f}, same best token {:.2f} %, largest "
        "difference of a score {:.2f} standard deviations\n",
        text.float32.mean(), text.fidelity.mean_divergence(), 100 * text.fidelity.same_best_share(),
        text.fidelity.largest_difference);
}

void print_json(const Price& price) {
    const TextLoss& text = price.text;
    boost::json::object out{{"loss", text.loss.mean()},
                            {"perplexity", price.perplexity()},
                            {"tokens", text.loss.tokens}};
    if (text.fidelity.rows != 0) {
        out["float32"] = {{"loss", text.float32.mean()},
                          {"kl_divergence", text.fidelity.mean_divergence()},
                          {"same_best", text.fidelity.same_best_share()},
                          {"largest_difference", text.fidelity.largest_difference}};
    }
    std::printf("%s\n", boost::json::serialize(out).c_str());
}

// Every form of the cache by turns; the differences are to f16.
int compare_forms(const PerplexityFlags& flags, const LoadedModel& loaded,
                  std::span<const model::TokenId> tokens) {
    std::vector<Price> prices;
    for (const char* form : {"f16", "f32", "int8", "int4"}) {
        BackendFlags backend = flags.backend;
        backend.kv_type = form;
        auto price = measure(loaded, flags, backend, tokens);
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
                                                {"loss", price.text.loss.mean()},
                                                {"perplexity", price.perplexity()},
                                                {"percent", percent(price)}});
        const boost::json::object out{{"forms", std::move(forms)},
                                      {"tokens", prices.front().text.loss.tokens}};
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
    const std::size_t tokens_min = first_token(*loaded->tokenizer) ? 1 : 2;
    if (tokens.size() < tokens_min)
        return report(invalid_input(fmt::format("the text holds {} tokens: give one of at least {}",
                                                tokens.size(), tokens_min)));
    if (flags.all_forms) {
        if (!loaded->file)
            return report(invalid_input("the toy has no KV cache: leave --kv-forms out"));
        return compare_forms(flags, *loaded, tokens);
    }
    const auto price = measure(*loaded, flags, flags.backend, tokens);
    if (!price) return report(price.error());
    flags.as_json ? print_json(*price) : print_text(*price);
    return exit_ok;
}

}  // namespace

void add_perplexity(Command& app, Run& run) {
    auto command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
    const auto flags = std::make_shared<PerplexityFlags>();
    flags->backend.running_max = 1;
    add_backend_flags(command, flags->backend);
    auto source = command.add_choice("Text", "what to predict; one of these");
    source.add("--file,-f", flags->file, "a text file; - reads standard input");
    source.add("--text", flags->text, "the text itself");
    command
        .add("--context", flags->context,
             "tokens that are computed together, each stretch without those before it")
        .within(2, 1 << 20)
        .shows_default();
    const auto forms =
        command.add_switch("--kv-forms", flags->all_forms,
                           "measure with every form of the KV cache, and what each costs");
    command
        .add_switch("--compare", flags->compare,
                    "compute the text in float32 as well and say how far --arithmetic is from "
                    "that (keeps 4 bytes a token of a stretch and entry of the vocabulary)")
        .excludes(forms);
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.when_chosen([flags, &run] { run = [flags] { return perplexity(*flags); }; });
}

}  // namespace troupe::tools
