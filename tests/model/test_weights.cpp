// Hyperparameters and weights: what a llama file must hold, and what is said when it does not.
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "model/hyperparameters.hpp"
#include "model/weights.hpp"
#include "tests/support/gguf_writer.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using namespace troupe::model;
using troupe::test::GgufWriter;

namespace {

// A tiny llama: 1 layer, width 8, 2 query heads of 4, 1 key/value head, 3 tokens. `edit` may change
// one entry by name: metadata and tensors are written unless it returns true.
struct TinyLlama {
    std::function<bool(GgufWriter&, const std::string&)> edit =
        [](GgufWriter&, const std::string&) { return false; };

    [[nodiscard]] std::vector<std::byte> bytes() const {
        GgufWriter writer;
        const auto u32 = [&](const std::string& key, std::uint32_t value) {
            if (!edit(writer, key)) writer.u32(key, value);
        };
        if (!edit(writer, "general.architecture")) writer.string("general.architecture", "llama");
        u32("llama.block_count", 1);
        u32("llama.context_length", 64);
        u32("llama.embedding_length", 8);
        u32("llama.feed_forward_length", 16);
        u32("llama.attention.head_count", 2);
        u32("llama.attention.head_count_kv", 1);
        u32("llama.vocab_size", 3);
        if (!edit(writer, "llama.attention.layer_norm_rms_epsilon")) {
            writer.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
        }
        if (!edit(writer, "llama.rope.freq_base")) writer.f32("llama.rope.freq_base", 10000);
        edit(writer, "more metadata");
        const std::vector<float> data(1024);
        const auto tensor = [&](const std::string& name, std::vector<std::int64_t> dims) {
            if (edit(writer, name)) return;
            std::int64_t count = 1;
            for (const std::int64_t dim : dims)
                count *= dim;
            writer.f32_tensor(name, dims, std::span{data}.first(static_cast<std::size_t>(count)));
        };
        tensor("token_embd.weight", {8, 3});
        tensor("output_norm.weight", {8});
        tensor("blk.0.attn_norm.weight", {8});
        tensor("blk.0.attn_q.weight", {8, 8});
        tensor("blk.0.attn_k.weight", {8, 4});
        tensor("blk.0.attn_v.weight", {8, 4});
        tensor("blk.0.attn_output.weight", {8, 8});
        tensor("blk.0.ffn_norm.weight", {8});
        tensor("blk.0.ffn_gate.weight", {8, 16});
        tensor("blk.0.ffn_up.weight", {8, 16});
        tensor("blk.0.ffn_down.weight", {16, 8});
        edit(writer, "more tensors");
        return writer.bytes();
    }
};

using Edit = std::function<void(GgufWriter&)>;

// The same with one entry replaced (or left out, by an edit that does nothing).
TinyLlama with(const std::string& name, const Edit& replace) {
    TinyLlama llama;
    llama.edit = [=](GgufWriter& writer, const std::string& entry) {
        if (entry != name) return false;
        replace(writer);
        return true;
    };
    return llama;
}

// The message of the first check that fails.
std::string refusal(const TinyLlama& llama) {
    const auto bytes = llama.bytes();
    const auto file = GgufFile::parse(bytes);
    REQUIRE(file.has_value());
    const auto hyperparameters = read_hyperparameters(*file);
    if (!hyperparameters) return hyperparameters.error().message;
    const auto weights = read_weights(*file, *hyperparameters);
    return weights ? "(accepted)" : weights.error().message;
}

std::string refusal_with_u32(const std::string& key, std::uint32_t value) {
    return refusal(with(key, [=](GgufWriter& writer) { writer.u32(key, value); }));
}

const Edit kLeaveOut = [](GgufWriter&) {};

}  // namespace

TEST_CASE("A whole llama file is read", "[model][weights]") {
    const auto bytes = TinyLlama{}.bytes();
    const auto file = GgufFile::parse(bytes);
    REQUIRE(file.has_value());
    const auto h = read_hyperparameters(*file);
    REQUIRE(h.has_value());
    CHECK(h->head_length == 4);
    CHECK(h->query_length() == 8);
    CHECK(h->kv_length() == 4);
    CHECK(h->heads_per_kv() == 2);
    CHECK(h->rope_dimension_count == 4);

    const auto weights = read_weights(*file, *h);
    REQUIRE(weights.has_value());
    CHECK(weights->tied_output);
    CHECK(weights->output.bytes.data() == weights->token_embd.bytes.data());
    REQUIRE(weights->layers.size() == 1);
    const Matrix& down = weights->layers[0].ffn_down;
    CHECK(down.rows == 8);
    CHECK(down.columns == 16);
    CHECK(down.row_bytes() == 64);
    CHECK(down.row(7).data() == down.bytes.data() + 7 * 64);
}

TEST_CASE("Hyperparameters that are wrong are refused by name", "[model][weights]") {
    CHECK(refusal(with("general.architecture", kLeaveOut)) ==
          "metadata \"general.architecture\" is missing");
    CHECK(refusal(with("general.architecture",
                       [](GgufWriter& w) { w.string("general.architecture", "gpt2"); })) ==
          "architecture \"gpt2\" is not supported; these are: llama, qwen2, qwen3, qwen3moe, "
          "gemma2, gemma3, phi3, smollm3, olmo2");
    CHECK(refusal(with("llama.block_count", kLeaveOut)) ==
          "metadata \"llama.block_count\" is missing");
    CHECK(refusal(with("llama.block_count", [](GgufWriter& w) {
              w.string("llama.block_count", "1");
          })) == "metadata \"llama.block_count\" has type string, expected an integer");
    CHECK(refusal_with_u32("llama.block_count", 0) ==
          "metadata \"llama.block_count\" is 0, expected 1 to 1024");
    CHECK(refusal_with_u32("llama.block_count", 1025) ==
          "metadata \"llama.block_count\" is 1025, expected 1 to 1024");
    CHECK(
        refusal_with_u32("llama.attention.head_count_kv", 3).find("2 query heads cannot share 3") ==
        0);
    CHECK(refusal_with_u32("llama.attention.head_count_kv", 0) ==
          "metadata \"llama.attention.head_count_kv\" is 0, expected 1 to 1024");
    CHECK(refusal_with_u32("llama.attention.head_count", 3).find("cannot share") ==
          std::string::npos);
    CHECK(refusal_with_u32("llama.attention.head_count", 3) ==
          "metadata \"llama.embedding_length\" is 8, which 3 heads do not divide");
    CHECK(refusal_with_u32("llama.attention.head_count", 8) ==
          "heads have 1 elements, expected an even number from 2 to 262144");
    CHECK(refusal(with("more metadata", [](GgufWriter& w) {
              w.u32("llama.rope.dimension_count", 6);
          })) == "metadata \"llama.rope.dimension_count\" is 6, expected 1 to 4");
    CHECK(refusal(with("more metadata",
                       [](GgufWriter& w) { w.string("llama.rope.scaling.type", "su"); })) ==
          "rope scaling \"su\" is not supported (metadata \"llama.rope.scaling.type\"); \"none\", "
          "\"linear\", \"yarn\" and \"longrope\" are");
    CHECK(refusal(with("more metadata", [](GgufWriter& w) {
              w.string("llama.rope.scaling.type", "yarn");
          })) == "metadata \"llama.rope.scaling.factor\" is missing");
    CHECK(refusal(with("more metadata", [](GgufWriter& w) {
              w.string("llama.rope.scaling.type", "none");
          })) == "(accepted)");
    CHECK(refusal(with("more metadata", [](GgufWriter& w) {
              w.strings("tokenizer.ggml.tokens", {"a", "b"});
          })) == "metadata \"llama.vocab_size\" is 3, but \"tokenizer.ggml.tokens\" has 2 tokens");
    CHECK(refusal(with("more metadata", [](GgufWriter& w) { w.u32("llama.expert_count", 8); })) ==
          "metadata \"llama.expert_used_count\" is missing");
    CHECK(refusal(with("llama.attention.layer_norm_rms_epsilon", [](GgufWriter& w) {
              w.f32("llama.attention.layer_norm_rms_epsilon", -1);
          })).find("is -1, expected a positive finite number") != std::string::npos);
}

TEST_CASE("The vocabulary size may come from the tokens alone", "[model][weights]") {
    auto llama = with("more metadata", [](GgufWriter& w) {
        w.strings("tokenizer.ggml.tokens", {"a", "b", "c"});
    });
    CHECK(refusal(llama) == "(accepted)");
    llama = with("llama.vocab_size", [](GgufWriter& w) {
        w.strings("tokenizer.ggml.tokens", {"a", "b", "c"});
    });
    CHECK(refusal(llama) == "(accepted)");
    CHECK(refusal(with("llama.vocab_size", kLeaveOut)) ==
          "metadata \"llama.vocab_size\" is missing");
}

TEST_CASE("Tensors that are missing or of the wrong shape or type are named", "[model][weights]") {
    const std::vector<float> data(64);
    CHECK(refusal(with("blk.0.ffn_up.weight", kLeaveOut)) ==
          "tensor blk.0.ffn_up.weight is missing");
    CHECK(refusal(with("output_norm.weight", kLeaveOut)) == "tensor output_norm.weight is missing");
    CHECK(refusal_with_u32("llama.block_count", 2) == "tensor blk.1.attn_norm.weight is missing");
    CHECK(refusal(with("blk.0.attn_q.weight", [&](GgufWriter& w) {
              w.f32_tensor("blk.0.attn_q.weight", {8, 7}, std::span{data}.first(56));
          })) == "tensor blk.0.attn_q.weight has shape 8x7, expected 8x8");
    CHECK(refusal(with("blk.0.attn_norm.weight", [&](GgufWriter& w) {
              w.f32_tensor("blk.0.attn_norm.weight", {7}, std::span{data}.first(7));
          })) == "tensor blk.0.attn_norm.weight has shape 7, expected 8");
    CHECK(refusal(with("blk.0.attn_norm.weight", [&](GgufWriter& w) {
              w.tensor("blk.0.attn_norm.weight", 1, {8}, std::as_bytes(std::span{data}).first(16));
          })) == "tensor blk.0.attn_norm.weight has type F16, expected F32");
    CHECK(refusal(with("blk.0.attn_q.weight", [&](GgufWriter& w) {
              w.tensor("blk.0.attn_q.weight", 24, {8, 8}, std::as_bytes(std::span{data}).first(64));
          })) == "tensor blk.0.attn_q.weight has type I8, which is not supported");
    CHECK(refusal(with("more tensors", [&](GgufWriter& w) {
              w.f32_tensor("blk.0.attn_output.bias", {8}, std::span{data}.first(8));
          })) == "tensor blk.0.attn_output.bias: biases are not supported here");
    CHECK(refusal(with("more tensors", [&](GgufWriter& w) {
              w.f32_tensor("blk.0.attn_q_norm.weight", {4}, std::span{data}.first(4));
          })) == "tensor blk.0.attn_q_norm.weight: norms are not supported here");
    CHECK(refusal(with("more tensors", [&](GgufWriter& w) {
              w.f32_tensor("rope_freqs.weight", {2}, std::span{data}.first(2));
          })) == "a rope factor is not positive");
    CHECK(refusal(with("more tensors", [&](GgufWriter& w) {
              w.f32_tensor("rope_factors_long.weight", {2}, std::span{data}.first(2));
          })) == "tensor rope_factors_long.weight: rope factors are not supported here");
    CHECK(refusal(with("more tensors", [&](GgufWriter& w) {
              w.f32_tensor("something.else", {2}, std::span{data}.first(2));
          })) == "(accepted)");
}

TEST_CASE("The default model's hyperparameters and weights are read", "[model][weights]") {
    const auto path = test::default_model();
    if (path.empty()) return;
    const auto file = GgufFile::open(path);
    REQUIRE(file.has_value());
    const auto h = read_hyperparameters(*file);
    REQUIRE(h.has_value());
    CHECK(h->block_count == 30);
    CHECK(h->context_length == 8192);
    CHECK(h->head_count == 9);
    CHECK(h->head_count_kv == 3);
    CHECK(h->head_length == 64);
    CHECK(h->vocabulary_size == 49152);
    CHECK(h->rope_freq_base == 100000.0F);
    CHECK(h->rope_dimension_count == 64);
    CHECK(h->rms_epsilon == 1e-5F);
    const auto weights = read_weights(*file, *h);
    REQUIRE(weights.has_value());
    CHECK(weights->tied_output);
    CHECK(weights->layers.size() == 30);
    CHECK(weights->layers[29].attn_k.rows == 192);
    CHECK(weights->layers[29].attn_k.type == TensorType::q4_1);
}
