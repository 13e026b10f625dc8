// DraftOdds: how likely the next token of a request's draft is right, from what became of those
// before it. Pure; one a request, engine thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe::actors {

// Where a draft comes from. The longer the text behind a place found by prompt lookup has been the
// same, the longer it will be.
enum class DraftKind : std::uint8_t { short_match, medium_match, long_match, model };
inline constexpr std::size_t kDraftKinds = 4;

[[nodiscard]] DraftKind kind_of_match(std::uint32_t match_length);

class DraftOdds {
 public:
    // The probability that a token is right if all before it in its draft are.
    [[nodiscard]] double of(DraftKind kind) const;

    // A draft of `proposed` tokens, the first `accepted` of which were right.
    void learn(DraftKind kind, std::uint32_t proposed, std::uint32_t accepted);

    // A step without a draft: what was learned fades, so that a request whose text begins to repeat
    // itself is tried again.
    void fade();

 private:
    struct Evidence {
        double tried = 0;
        double right = 0;
    };
    std::array<Evidence, kDraftKinds> evidence_{};
};

}  // namespace troupe::actors
