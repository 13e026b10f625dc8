// Splits text into the stretches that a tokenizer encodes on their own, by the expressions that a
// model was trained with. Immutable; safe from every thread. Matching uses PCRE2's JIT and constant
// stack; where a limit is hit the rest of the text stays one stretch, which is slow but defined.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe::model {

// What becomes of the text between the matches of a step is a stretch; this is what becomes of a
// match. The words are those of Hugging Face tokenizers.
enum class SplitBehavior : std::uint8_t {
    isolated,              // a stretch of its own
    removed,               // gone
    merged_with_previous,  // the end of the stretch before it
    merged_with_next,      // the beginning of the stretch after it
    contiguous,            // neighbours are one stretch
};

struct SplitStep {
    std::string expression;  // for PCRE2, with Unicode's properties
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;  // what lies between the matches counts as the matches
};

class PreTokenizer {
 public:
    // No step: all text is one stretch.
    PreTokenizer();

    // Errors: unsupported for an expression that PCRE2 does not understand.
    [[nodiscard]] static Result<PreTokenizer> make(std::span<const SplitStep> steps);

    // `name` is the value of `tokenizer.ggml.pre`, empty where the file has none (as old GPT-2
    // and NeoX files). Errors: unsupported for a name that is not known; the message
    // lists the known ones.
    [[nodiscard]] static Result<PreTokenizer> make(std::string_view name);

    ~PreTokenizer();
    PreTokenizer(PreTokenizer&&) noexcept;
    PreTokenizer& operator=(PreTokenizer&&) noexcept;

    // Calls `sink` with each stretch, in order; `text` must be UTF-8.
    using Sink = std::function<void(std::string_view)>;
    void split(std::string_view text, const Sink& sink) const;

    // Whether a stretch that is a token by itself is that token even where merging would not
    // give it.
    [[nodiscard]] bool ignore_merges() const { return ignore_merges_; }

 private:
    class Step;
    class Run;

    std::vector<Step> steps_;  // each splits what the one before it left
    bool ignore_merges_ = false;
};

}  // namespace troupe::model
