#include "actors/draft_odds.hpp"

namespace troupe::actors {
namespace {

// Before anything is known, and how many tokens' evidence that weighs.
constexpr std::array<double, kDraftKinds> kPrior{0.4, 0.65, 0.85, 0.7};
constexpr double kPriorWeight = 2;

constexpr double kKeptByDraft = 0.9;  // of older evidence
constexpr double kKeptByStep = 0.98;

constexpr std::uint32_t kMediumMatch = 5;
constexpr std::uint32_t kLongMatch = 10;

}  // namespace

DraftKind kind_of_match(std::uint32_t match_length) {
    if (match_length < kMediumMatch) return DraftKind::short_match;
    return match_length < kLongMatch ? DraftKind::medium_match : DraftKind::long_match;
}

double DraftOdds::of(DraftKind kind) const {
    const auto k = static_cast<std::size_t>(kind);
    const Evidence& seen = evidence_[k];
    return (seen.right + kPrior[k] * kPriorWeight) / (seen.tried + kPriorWeight);
}

void DraftOdds::learn(DraftKind kind, std::uint32_t proposed, std::uint32_t accepted) {
    Evidence& seen = evidence_[static_cast<std::size_t>(kind)];
    seen.tried = seen.tried * kKeptByDraft + accepted + (accepted < proposed ? 1 : 0);
    seen.right = seen.right * kKeptByDraft + accepted;
}

void DraftOdds::fade() {
    for (Evidence& seen : evidence_) {
        seen.tried *= kKeptByStep;
        seen.right *= kKeptByStep;
    }
}

}  // namespace troupe::actors
