// What the tokenizer and template tests share: reading files and JSON, and the tokenizers of the
// default model and of the vocabularies in the shared data.
#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "model/tokenizer_gguf.hpp"

namespace troupe::test {

inline std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline boost::json::value read_json(const std::filesystem::path& path) {
    return boost::json::parse(read_text(path));
}

inline std::vector<model::TokenId> ids_of(const boost::json::value& array) {
    return boost::json::value_to<std::vector<model::TokenId>>(array);
}

// Aborts the test (by throwing) where the file is broken.
inline std::unique_ptr<const model::Tokenizer> open_tokenizer(const std::filesystem::path& path) {
    const Result<model::GgufFile> file = model::GgufFile::open(path);
    if (!file) throw std::runtime_error(file.error().message);
    Result<std::unique_ptr<const model::Tokenizer>> tokenizer = model::load_tokenizer(*file);
    if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
    return std::move(*tokenizer);
}

inline std::vector<model::TokenId> encode(const model::Tokenizer& tokenizer,
                                          std::string_view text) {
    std::vector<model::TokenId> ids;
    tokenizer.encode(text, ids);
    return ids;
}

inline std::string decode(const model::Tokenizer& tokenizer,
                          const std::vector<model::TokenId>& ids) {
    std::string bytes;
    for (const model::TokenId id : ids)
        bytes += tokenizer.bytes_of(id);
    return bytes;
}

}  // namespace troupe::test
