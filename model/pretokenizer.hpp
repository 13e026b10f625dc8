// Splits text into the stretches that byte-level BPE merges on their own, by the expressions that a
// model was trained with. Immutable; safe from every thread. Matching uses PCRE2's JIT and constant
// stack; where a limit is hit the rest of the text stays one stretch, which is slow but defined.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe::model {

class PreTokenizer {
 public:
    // `name` is the value of `tokenizer.ggml.pre`, empty where the file has none (as old GPT-2
    // and NeoX files). Errors: unsupported for a name that is not known.
    [[nodiscard]] static Result<PreTokenizer> make(std::string_view name);

    ~PreTokenizer();
    PreTokenizer(PreTokenizer&&) noexcept;
    PreTokenizer& operator=(PreTokenizer&&) noexcept;

    // Calls `sink` with each stretch, in order; together they are `text`, which must be UTF-8.
    using Sink = std::function<void(std::string_view)>;
    void split(std::string_view text, const Sink& sink) const;

    // Whether a stretch that is a token by itself is that token even where merging would not
    // give it.
    [[nodiscard]] bool ignore_merges() const { return ignore_merges_; }

 private:
    class Expression;
    class Run;

    PreTokenizer();

    std::vector<Expression> expressions_;  // each splits what the one before it left
    bool ignore_merges_ = false;
};

}  // namespace troupe::model
