// What the fuzzers of model files do with any bytes: refuse them or read them, never a fault. Also
// played by the unit tests. Tests only.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "model/chat_template.hpp"
#include "model/gguf_builder.hpp"
#include "model/hf_config.hpp"
#include "model/hf_tensors.hpp"
#include "model/safetensors.hpp"
#include "model/tokenizer_hf.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::test {

// As a safetensors file, and its tensors as those of a folder: as they are, as GPTQ's, as AWQ's.
inline void play_safetensors(std::string_view bytes) {
    using model::HfQuantisation;
    const auto tensors = model::parse_safetensors(std::as_bytes(std::span(bytes)));
    if (!tensors) return;
    for (const auto method : {HfQuantisation::Method::none, HfQuantisation::Method::gptq,
                              HfQuantisation::Method::awq}) {
        model::HfModelShape shape;
        shape.architecture = "llama";
        shape.qk_order = {4, 4};
        shape.quantisation.method = method;
        model::GgufBuilder out;
        (void)model::add_hf_tensors(*tensors, shape, out);
    }
}

// As a config.json.
inline void play_config_json(std::string_view bytes) {
    model::GgufBuilder out;
    (void)model::read_hf_config(bytes, out);
}

// As a tokenizer.json: a tokenizer takes any text.
inline void play_tokenizer_json(std::string_view bytes) {
    const auto loaded = model::load_hf_tokenizer(bytes, "{}");
    if (!loaded) return;
    std::vector<model::TokenId> ids;
    loaded->tokenizer->encode(bytes.substr(0, 1000), ids);
    for (const model::TokenId id : ids)
        TROUPE_ASSERT(id >= 0 && id < loaded->tokenizer->vocabulary_size());
}

// As a chat template, rendered with a small conversation.
inline void play_template(std::string_view bytes) {
    const auto compiled = model::ChatTemplate::compile(bytes, "<s>", "</s>");
    if (!compiled) return;
    const std::array messages{model::ChatMessage{.role = "system", .content = "Be brief."},
                              model::ChatMessage{.role = "user", .content = "<s>Hello {{ x }}"}};
    (void)compiled->render(messages);
}

}  // namespace troupe::test
