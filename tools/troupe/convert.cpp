// `troupe convert`: a Hugging Face folder, or a GGUF file of another type, as one GGUF file.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_builder.hpp"
#include "model/gguf_writer.hpp"
#include "model/hf_folder.hpp"
#include "model/hyperparameters.hpp"
#include "model/known_models.hpp"
#include "model/model_file.hpp"
#include "model/quantisation_recipe.hpp"
#include "model/tokenizer_export.hpp"
#include "model/weights.hpp"
#include "tools/troupe/command.hpp"

namespace troupe::tools {
namespace {

struct ConvertFlags {
    std::string from;
    std::string to;
    std::string type = "as-is";
};

using Written = std::vector<model::WrittenTensors>;

Result<Written> convert_file(const ConvertFlags& flags) {
    const auto path = model::find_model(flags.from);
    if (!path) return path.error();
    auto opened = model::open_model(*path);
    if (!opened) return opened.error();
    // A model that would not run is better refused now.
    const auto about = [&](const Error& error) {
        return Error{error.kind, fmt::format("{}: {}", flags.from, error.message)};
    };
    const auto sizes = model::read_hyperparameters(*opened);
    if (!sizes) return about(sizes.error());
    if (const auto weights = model::read_weights(*opened, *sizes); !weights)
        return about(weights.error());
    model::GgufBuilder out(std::move(*opened));
    const bool has_json = out.file().find(model::kHfTokenizerKey) != nullptr;
    if (has_json && out.file().find("tokenizer.ggml.model") == nullptr) {
        if (auto exported = model::export_hf_tokenizer(out); !exported)
            return about(exported.error());
    }
    const auto* recipe = model::find_quantisation_recipe(flags.type);
    if (recipe != nullptr) {
        out.set_u32("general.file_type", recipe->file_type);
        out.set_u32("general.quantization_version", 2);
    }
    return model::write_gguf(out.file(), flags.to, {recipe});
}

int convert(const ConvertFlags& flags) {
    const auto written = convert_file(flags);
    if (!written) return report(written.error());
    for (const model::WrittenTensors& one : *written) {
        const std::string instead =
            one.chosen.type == one.chosen.wanted
                ? ""
                : fmt::format("  (rows are not whole blocks of {})", to_string(one.chosen.wanted));
        fmt::print("{:>8.1f} MB  {:>4} tensors in {}{}\n", static_cast<double>(one.bytes) / 1e6,
                   one.count, to_string(one.chosen.type), instead);
    }
    std::error_code unknown;
    fmt::print("{}: {:.1f} MB\n", flags.to,
               static_cast<double>(std::filesystem::file_size(flags.to, unknown)) / 1e6);
    return exit_ok;
}

}  // namespace

void add_convert(Command& app, Run& run) {
    auto command = app.add_subcommand("convert", "Write a model as one GGUF file");
    const auto flags = std::make_shared<ConvertFlags>();
    command.add("MODEL", flags->from, "a Hugging Face folder, a GGUF file or a pulled model")
        .required();
    command.add("OUT", flags->to, "the GGUF file to write; must not be there yet").required();
    std::vector<std::string> words{"as-is"};
    for (const model::QuantisationRecipe& recipe : model::kQuantisationRecipes)
        words.emplace_back(recipe.name);
    command
        .add("--type", flags->type,
             "what matrices become; as-is copies them. Vectors are always float32. q4_k_m and "
             "q5_k_m have Q6_K where it tells most. Rows that are no multiple of 256 make q4_k "
             "q5_0, q5_k q5_1 and q6_k q8_0; none of 32, f16")
        .one_of(words)
        .shows_default();
    command.when_chosen([flags, &run] { run = [flags] { return convert(*flags); }; });
}

}  // namespace troupe::tools
