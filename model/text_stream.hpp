// Turns the token ids of one answer into text that may be shown at once: whole code points only,
// and nothing that a stop string could still take back. One object serves one answer, whether it
// is streamed or not: any split of the ids into calls gives the same text. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// One stop string on its way through the text: Knuth-Morris-Pratt, so each byte is looked at once.
class StopMatcher {
 public:
    explicit StopMatcher(std::string stop);

    // Takes the next byte of the text; true where the stop string ends with it.
    bool advance(char byte);

    // Length of the longest proper prefix of the stop string that the text so far ends with.
    [[nodiscard]] std::size_t matched() const { return matched_; }
    [[nodiscard]] std::size_t length() const { return stop_.size(); }

 private:
    std::string stop_;
    std::vector<std::size_t> fallback_;  // [n]: what still matches when byte n does not
    std::size_t matched_ = 0;
};

// A stop string that ended the answer.
struct StopHit {
    std::size_t index = 0;         // in the list that was given
    std::size_t tokens_count = 0;  // tokens up to and with the one that completed it

    friend bool operator==(const StopHit&, const StopHit&) = default;
};

// What becomes of bytes at the very end that are the beginning of a code point.
enum class PartialTail { drop, replace };

class TextStream {
 public:
    struct Options {
        std::vector<std::string> stops;
        bool include_stop = false;  // the stop string stays in the text
    };

    // `tokenizer` must outlive the stream. Errors: invalid_input for an empty stop string.
    [[nodiscard]] static Result<TextStream> make(const Tokenizer& tokenizer, Options options);

    // Appends to `out` what may be shown now. Stops at the token that completes a stop string: the
    // one that completes first wins, the longest of those that complete at the same byte. Ids after
    // that are ignored. Ill-formed bytes become one U+FFFD per maximal subpart.
    void feed(std::span<const TokenId> ids, std::string& out);

    // The answer has ended: appends what was held back. Call once; a no-op after a stop string.
    void finish(std::string& out, PartialTail tail = PartialTail::drop);

    [[nodiscard]] const std::optional<StopHit>& stop() const { return stop_; }
    [[nodiscard]] std::size_t tokens_count() const { return tokens_count_; }

 private:
    TextStream(const Tokenizer& tokenizer, Options options);

    void take_bytes(std::string_view bytes, std::string& out);
    void take_text(std::string_view text, std::string& out);

    const Tokenizer* tokenizer_;
    std::vector<StopMatcher> matchers_;
    bool include_stop_;
    std::string partial_;  // the beginning of a code point, at most three bytes
    std::string held_;     // text that may be the beginning of a stop string
    std::size_t tokens_count_ = 0;
    std::optional<StopHit> stop_;
};

}  // namespace troupe::model
