// The normalizers and pre-tokenizers of a tokenizer.json as steps of ours. Internal to
// tokenizer_hf.cpp.
#pragma once

#include <simdjson.h>

#include <string_view>
#include <vector>

#include "model/pretokenizer.hpp"
#include "model/text_normalizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// A field's text or flag, or what stands for it where it is absent or of another type.
[[nodiscard]] inline std::string_view text_or(
    const simdjson::simdjson_result<simdjson::dom::element>& found, std::string_view fallback) {
    std::string_view text;
    return found.get(text) == simdjson::SUCCESS ? text : fallback;
}
[[nodiscard]] inline bool flag_or(const simdjson::simdjson_result<simdjson::dom::element>& found,
                                  bool fallback) {
    bool flag = false;
    return found.get(flag) == simdjson::SUCCESS ? flag : fallback;
}

struct HfSteps {
    std::vector<NormalizerStep> normalizer;
    std::vector<NormalizerStep> marking;  // what pre-tokenizers change in the text
    std::vector<SplitStep> split;
    bool spells_bytes = false;  // there is a ByteLevel pre-tokenizer
};

// Append to `steps`; null and absent elements add nothing.
[[nodiscard]] Result<> read_hf_normalizer(simdjson::simdjson_result<simdjson::dom::element> element,
                                          HfSteps& steps);
[[nodiscard]] Result<> read_hf_pretokenizer(
    simdjson::simdjson_result<simdjson::dom::element> element, HfSteps& steps);

}  // namespace troupe::model
