// stories260K (../shared/data/1-model/stories260K) as a GGUF file: a real llama of 260,032
// parameters, small enough for every test. The weights are llama2.c's legacy checkpoint: 7 int32,
// then float32 tensors in the order read below; the tokenizer is its tok512.bin.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/half.hpp"
#include "tests/support/gguf_writer.hpp"
#include "tests/support/paths.hpp"

namespace troupe::test {

inline const char* const kStories260kBin = "1-model/stories260K/stories260K.bin";
inline const char* const kStories260kTokens = "1-model/stories260K/tok512.bin";
inline const char* const kStories260kReference = "1-model/stories260K/reference-greedy.json";

namespace stories260k {

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Shape {
    std::int64_t dim = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, vocabulary = 0,
                 context = 0;

    [[nodiscard]] std::int64_t head_length() const { return dim / heads; }
};

inline Shape read_shape(std::string_view checkpoint) {
    std::array<std::int32_t, 7> header{};
    std::memcpy(header.data(), checkpoint.data(), sizeof header);
    return {header[0], header[1], header[2], header[3], header[4], header[5], header[6]};
}

inline void put_values(GgufWriter& out, const Shape& s) {
    const auto u32 = [&](std::string_view key, std::int64_t value) {
        out.u32(key, static_cast<std::uint32_t>(value));
    };
    out.string("general.architecture", "llama").string("general.name", "stories260K");
    u32("llama.context_length", s.context);
    u32("llama.embedding_length", s.dim);
    u32("llama.block_count", s.layers);
    u32("llama.feed_forward_length", s.hidden);
    u32("llama.attention.head_count", s.heads);
    u32("llama.attention.head_count_kv", s.kv_heads);
    u32("llama.rope.dimension_count", s.head_length());
    u32("llama.vocab_size", s.vocabulary);
    out.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    out.f32("llama.rope.freq_base", 10000.0F);
}

enum class Weights { floats, halves };  // of the matrices; vectors are floats

inline void put_tensors(GgufWriter& out, std::string_view checkpoint, const Shape& s,
                        Weights weights) {
    std::size_t at = 7 * sizeof(std::int32_t);
    const auto take = [&](const std::string& name, std::int64_t columns, std::int64_t rows) {
        std::vector<std::int64_t> dims{columns};
        if (rows != 0) dims.push_back(rows);
        const auto count = static_cast<std::size_t>(columns * (rows == 0 ? 1 : rows));
        const std::string_view bytes = checkpoint.substr(at, count * sizeof(float));
        at += bytes.size();
        if (rows == 0 || weights == Weights::floats) {
            out.tensor(name, 0, dims, std::as_bytes(std::span(bytes)));
            return;
        }
        std::vector<std::uint16_t> halves(count);
        for (std::size_t i = 0; i < count; ++i) {
            float value = 0;
            std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
            halves[i] = model::float_to_half(value);
        }
        out.tensor(name, 1, dims, std::as_bytes(std::span(halves)));
    };
    const auto take_layers = [&](const std::string& name, std::int64_t columns, std::int64_t rows) {
        for (std::int64_t layer = 0; layer < s.layers; ++layer) {
            take("blk." + std::to_string(layer) + "." + name + ".weight", columns, rows);
        }
    };
    const std::int64_t kv_width = s.head_length() * s.kv_heads;
    take("token_embd.weight", s.dim, s.vocabulary);
    take_layers("attn_norm", s.dim, 0);
    take_layers("attn_q", s.dim, s.dim);
    take_layers("attn_k", s.dim, kv_width);
    take_layers("attn_v", s.dim, kv_width);
    take_layers("attn_output", s.dim, s.dim);
    take_layers("ffn_norm", s.dim, 0);
    take_layers("ffn_gate", s.dim, s.hidden);
    take_layers("ffn_down", s.hidden, s.dim);
    take_layers("ffn_up", s.dim, s.hidden);
    take("output_norm.weight", s.dim, 0);
}

// tok512.bin: int32 longest piece, then (float32 score, int32 length, bytes) a token. Spaces become
// U+2581 and the three control tokens get their usual names, as sentencepiece has them.
inline void put_tokenizer(GgufWriter& out, std::string_view file, std::int64_t vocabulary) {
    enum : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
    std::vector<std::string> pieces;
    std::vector<float> scores;
    std::vector<std::int32_t> types;
    std::size_t at = sizeof(std::int32_t);
    for (std::int64_t id = 0; id < vocabulary; ++id) {
        std::int32_t length = 0;
        std::memcpy(&scores.emplace_back(), file.data() + at, sizeof(float));
        std::memcpy(&length, file.data() + at + 4, sizeof length);
        std::string& piece = pieces.emplace_back();
        for (const char c : file.substr(at + 8, static_cast<std::size_t>(length))) {
            piece += c == ' ' ? std::string("\xE2\x96\x81") : std::string(1, c);
        }
        types.push_back(id == 0 ? kUnknown : id < 3 ? kControl : id < 259 ? kByte : kNormal);
        at += 8 + static_cast<std::size_t>(length);
    }
    pieces[0] = "<unk>";
    pieces[1] = "<s>";
    pieces[2] = "</s>";
    out.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", pieces);
    out.array("tokenizer.ggml.scores", model::GgufType::f32, scores);
    out.array("tokenizer.ggml.token_type", model::GgufType::i32, types);
    out.u32("tokenizer.ggml.unknown_token_id", 0);
    out.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
    out.boolean("tokenizer.ggml.add_bos_token", true);
    out.boolean("tokenizer.ggml.add_space_prefix", true);
}

}  // namespace stories260k

// The bytes of the GGUF file, or empty with a line on stdout where the shared data is not at hand.
inline std::vector<std::byte> stories260k_gguf(
    stories260k::Weights weights = stories260k::Weights::floats) {
    if (!have_shared(kStories260kBin) || !have_shared(kStories260kTokens)) return {};
    const std::string checkpoint = stories260k::read_file(shared_data(kStories260kBin));
    const stories260k::Shape shape = stories260k::read_shape(checkpoint);
    GgufWriter out;
    stories260k::put_values(out, shape);
    stories260k::put_tokenizer(out, stories260k::read_file(shared_data(kStories260kTokens)),
                               shape.vocabulary);
    stories260k::put_tensors(out, checkpoint, shape, weights);
    return out.bytes();
}

}  // namespace troupe::test
