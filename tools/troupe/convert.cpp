// `troupe convert`: a Hugging Face folder, or a GGUF file of another type, as one GGUF file.
#include <fmt/format.h>

#include <cctype>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_builder.hpp"
#include "model/gguf_writer.hpp"
#include "model/hf_folder.hpp"
#include "model/hyperparameters.hpp"
#include "model/known_models.hpp"
#include "model/model_file.hpp"
#include "model/quantise.hpp"
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

std::string flag_word(model::TensorType type) {
    std::string word(to_string(type));
    for (char& c : word)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return word;
}

std::optional<model::TensorType> chosen_type(const std::string& word) {
    for (const model::TensorType type : model::kQuantisableTypes)
        if (word == flag_word(type)) return type;
    return std::nullopt;
}

// "general.file_type": llama.cpp's number for files whose matrices are mostly of this type.
std::uint32_t file_type_number(model::TensorType type) {
    switch (type) {
        case model::TensorType::f16:
            return 1;
        case model::TensorType::q4_0:
            return 2;
        case model::TensorType::q4_1:
            return 3;
        case model::TensorType::q8_0:
            return 7;
        case model::TensorType::q5_0:
            return 8;
        case model::TensorType::q5_1:
            return 9;
        case model::TensorType::bf16:
            return 32;
        default:
            return 0;
    }
}

Result<> convert_file(const ConvertFlags& flags) {
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
    const model::GgufWriteOptions options{chosen_type(flags.type)};
    if (options.type) {
        out.set_u32("general.file_type", file_type_number(*options.type));
        out.set_u32("general.quantization_version", 2);
    }
    return model::write_gguf(out.file(), flags.to, options);
}

int convert(const ConvertFlags& flags) {
    if (const auto done = convert_file(flags); !done) return report(done.error());
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
    for (const model::TensorType type : model::kQuantisableTypes)
        words.push_back(flag_word(type));
    command
        .add("--type", flags->type,
             "what matrices become; as-is copies them. Vectors are always float32")
        .one_of(words)
        .shows_default();
    command.when_chosen([flags, &run] { run = [flags] { return convert(*flags); }; });
}

}  // namespace troupe::tools
