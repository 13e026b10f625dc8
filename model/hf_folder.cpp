#include "model/hf_folder.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_builder.hpp"
#include "model/hf_config.hpp"
#include "model/hf_tensors.hpp"
#include "model/json_pieces.hpp"
#include "model/mapped_file.hpp"
#include "model/model_file.hpp"
#include "model/safetensors.hpp"
#include "model/tokenizer_hf.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

namespace fs = std::filesystem;

Error in_file(const fs::path& path, const Error& error) {
    return Error{error.kind, fmt::format("{}: {}", path.string(), error.message)};
}

// What goes to a parser whole takes fifteen times its bytes for a moment; no published config.json
// comes near that bound. Of larger files only small parts do; the largest tokenizer.json has half
// of the second.
constexpr std::size_t kConfigBytesMax = 4U << 20;
constexpr std::size_t kTextBytesMax = 64U << 20;

Result<std::string> read_text(const fs::path& path, std::size_t bytes_max) {
    const auto mapped = MappedFile::open(path);
    if (!mapped) return mapped.error();
    if (mapped->bytes().size() > bytes_max)
        return invalid_input(fmt::format("{} has {} bytes; at most {} are read", path.string(),
                                         mapped->bytes().size(), bytes_max));
    return std::string(as_text(mapped->bytes()));
}

// The text of a file that need not be there: empty where it is not.
Result<std::string> find_text(const fs::path& path, std::size_t bytes_max = kTextBytesMax) {
    auto text = read_text(path, bytes_max);
    if (!text && text.error().kind == ErrorKind::not_found) return std::string();
    return text;
}

// Tensors by part: which file has which. One unnamed set for a folder without an index.
using WeightMap = std::map<std::string, std::set<std::string>>;

Result<WeightMap> read_index(std::string_view json) {
    constexpr std::string_view kName = "the index";
    const auto cut = cut_members(json, kName, {"weight_map"}, kConfigBytesMax);
    if (!cut) return cut.error();
    simdjson::dom::parser parser;
    if (const auto error = parser.parse(cut->rest).error())
        return invalid_input(fmt::format("{}: {}", kName, simdjson::error_message(error)));
    if (!cut->values[0].starts_with('{')) return invalid_input("it has no \"weight_map\"");
    WeightMap out;
    const auto add = [&](const simdjson::dom::key_value_pair& field) -> Result<> {
        std::string_view file;
        const bool is_text = field.value.get(file) == simdjson::SUCCESS;
        if (!is_text || file.empty() || file.find('/') != file.npos || file == "..") {
            return invalid_input(fmt::format("the file of tensor \"{}\" is no name of a file",
                                             log::escaped(field.key)));
        }
        out[std::string(file)].emplace(field.key);
        return {};
    };
    if (auto read = each_member(cut->values[0], kName, add); !read) return read.error();
    return out;
}

// Opens one folder, file by file.
class Folder {
 public:
    explicit Folder(const fs::path& path) : path_(path) {}

    [[nodiscard]] Result<GgufFile> open();

 private:
    [[nodiscard]] Result<> read_config();
    [[nodiscard]] Result<> read_tokenizer();
    [[nodiscard]] Result<> read_end_tokens();
    [[nodiscard]] Result<> read_weights();
    // Its tensors, but only those named; all, where none are.
    [[nodiscard]] Result<> read_part(const std::string& name, const std::set<std::string>& wanted);

    const fs::path& path_;
    GgufBuilder out_;
    HfModelShape shape_;
    std::string config_;
    std::vector<SafeTensor> tensors_;
};

Result<> Folder::read_config() {
    auto text = read_text(path_ / "config.json", kConfigBytesMax);
    if (!text) return text.error();
    config_ = std::move(*text);
    auto shape = read_hf_config(config_, out_);
    if (!shape)
        return Error{shape.error().kind,
                     fmt::format("{}: {}", path_.string(), shape.error().message)};
    shape_ = std::move(*shape);
    out_.set_string("general.name", model_name(path_));
    return {};
}

Result<> Folder::read_tokenizer() {
    auto tokenizer = find_text(path_ / "tokenizer.json");
    if (!tokenizer) return tokenizer.error();
    auto config = find_text(path_ / "tokenizer_config.json");
    if (!config) return config.error();
    auto chat_template = find_text(path_ / "chat_template.jinja");
    if (!chat_template) return chat_template.error();
    if (chat_template->empty()) {
        auto found = find_hf_chat_template(*config);
        if (!found) return in_file(path_, found.error());
        *chat_template = std::move(*found);
    }
    if (!tokenizer->empty()) out_.set_string(kHfTokenizerKey, *tokenizer);
    if (!config->empty()) out_.set_string(kHfTokenizerConfigKey, *config);
    if (!chat_template->empty()) out_.set_string("tokenizer.chat_template", *chat_template);
    return read_end_tokens();
}

// generation_config.json goes before config.json: one id or a list of them.
Result<> Folder::read_end_tokens() {
    auto generation = find_text(path_ / "generation_config.json", kConfigBytesMax);
    if (!generation) return generation.error();
    for (const std::string* json : {&*generation, &config_}) {
        simdjson::dom::parser parser;
        const auto found = parser.parse(json->empty() ? std::string_view("{}") : *json);
        std::vector<std::int32_t> ids;
        simdjson::dom::array list;
        std::int64_t one = -1;
        if (found["eos_token_id"].get(one) == simdjson::SUCCESS) {
            ids.push_back(static_cast<std::int32_t>(one));
        } else if (found["eos_token_id"].get(list) == simdjson::SUCCESS) {
            for (const simdjson::dom::element id : list)
                ids.push_back(id.get(one) == simdjson::SUCCESS ? static_cast<std::int32_t>(one)
                                                               : -1);
        }
        if (ids.empty()) continue;
        out_.set_i32s(kEndTokensKey, ids);
        return {};
    }
    return {};
}

Result<> Folder::read_part(const std::string& name, const std::set<std::string>& wanted) {
    const fs::path path = path_ / name;
    auto mapped = MappedFile::open(path);
    if (!mapped) return mapped.error();
    auto tensors = parse_safetensors(out_.keep(std::move(*mapped)));
    if (!tensors) return in_file(path, tensors.error());
    std::size_t found = 0;
    for (SafeTensor& tensor : *tensors) {
        if (!wanted.empty() && !wanted.contains(tensor.name)) continue;
        ++found;
        tensors_.push_back(std::move(tensor));
    }
    if (found >= wanted.size()) return {};
    for (const std::string& one : wanted) {
        const bool is_there =
            std::any_of(tensors_.end() - static_cast<std::ptrdiff_t>(found), tensors_.end(),
                        [&](const SafeTensor& tensor) { return tensor.name == one; });
        if (!is_there)
            return in_file(
                path, invalid_input(fmt::format("the index wants tensor \"{}\" here, and it is not",
                                                log::escaped(one))));
    }
    return {};
}

Result<> Folder::read_weights() {
    const fs::path index_path = path_ / "model.safetensors.index.json";
    auto index = find_text(index_path);
    if (!index) return index.error();
    WeightMap parts{{"model.safetensors", {}}};
    if (!index->empty()) {
        auto read = read_index(*index);
        if (!read) return in_file(index_path, read.error());
        parts = std::move(*read);
    }
    for (const auto& [name, wanted] : parts)
        if (auto read = read_part(name, wanted); !read) return read;
    auto added = add_hf_tensors(tensors_, shape_, out_);
    return added ? added : in_file(path_, added.error());
}

Result<GgufFile> Folder::open() {
    for (auto step : {&Folder::read_config, &Folder::read_tokenizer, &Folder::read_weights})
        if (auto done = (this->*step)(); !done) return done.error();
    return out_.finish();
}

}  // namespace

Result<GgufFile> open_hf_folder(const std::filesystem::path& folder) {
    return Folder(folder).open();
}

}  // namespace troupe::model
