#include "model/beam_search.hpp"

#include <algorithm>
#include <limits>

#include "model/math.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {
namespace {

bool is_in(const std::vector<TokenId>& ids, TokenId token) {
    return std::ranges::find(ids, token) != ids.end();
}

// length^penalty with the project's own functions; exact where the penalty is 0 or 1.
double power(std::uint32_t length, double penalty) {
    if (penalty == 0) return 1;
    if (penalty == 1) return length;
    return math::exp(penalty * math::log(static_cast<double>(length)));
}

}  // namespace

BeamSearch::BeamSearch(const DecodingParams& params, std::span<const TokenId> end_tokens,
                       std::uint32_t length_max)
    : width_(static_cast<std::uint32_t>(params.beam_width)),
      length_penalty_(params.length_penalty),
      length_max_(length_max),
      min_tokens_(static_cast<std::uint32_t>(params.min_tokens)),
      ignore_end_tokens_(params.ignore_eos),
      end_tokens_(end_tokens.begin(), end_tokens.end()),
      stop_tokens_(params.stop_token_ids) {
    TROUPE_ASSERT(params.beam_width >= 1 && length_max >= 1, "the edge checks the ranges");
}

// A row can put width_ tokens among the next beams, beside those that end it or are banned.
std::uint32_t BeamSearch::candidates_needed() const {
    return width_ + static_cast<std::uint32_t>(end_tokens_.size() + stop_tokens_.size());
}

void BeamSearch::advance(std::span<const std::vector<TokenLogprob>> rows) {
    TROUPE_ASSERT(!done_ && rows.size() == beams_.size(), "a row for each beam");
    rank_candidates(rows);
    ++length_;
    length_divisor_ = power(length_, length_penalty_);
    moves_.clear();
    next_beams_.clear();
    for (std::size_t rank = 0; rank < candidates_.size(); ++rank) {
        const Candidate& candidate = candidates_[rank];
        if (length_ == length_max_ || ends(candidate.token)) {
            if (rank < width_) finish(candidate);
        } else if (next_beams_.size() < width_) {
            next_beams_.push_back({append(candidate), candidate.sum});
            moves_.push_back({candidate.parent, candidate.token});
        }
    }
    beams_.swap(next_beams_);
    done_ = beams_.empty() || !can_improve();
    if (done_) moves_.clear();
}

void BeamSearch::rank_candidates(std::span<const std::vector<TokenLogprob>> rows) {
    candidates_.clear();
    for (std::uint32_t beam = 0; beam < rows.size(); ++beam) {
        for (const TokenLogprob& next : rows[beam]) {
            if (is_banned(next.id) || next.logprob == -std::numeric_limits<float>::infinity())
                continue;
            candidates_.push_back(
                {beam, next.id, next.logprob, beams_[beam].sum + double{next.logprob}});
        }
    }
    std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
        if (a.sum != b.sum) return a.sum > b.sum;
        if (a.parent != b.parent) return a.parent < b.parent;
        return a.token < b.token;
    });
}

// Asked about the token that would come at place length_.
bool BeamSearch::is_banned(TokenId token) const {
    return (ignore_end_tokens_ || length_ < min_tokens_) && is_in(end_tokens_, token);
}

// Asked once the token counts in length_.
bool BeamSearch::ends(TokenId token) const {
    if (length_ <= min_tokens_) return false;
    return is_in(end_tokens_, token) || is_in(stop_tokens_, token);
}

std::uint32_t BeamSearch::append(const Candidate& candidate) {
    nodes_.push_back({beams_[candidate.parent].last, candidate.token, candidate.logprob});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
}

// Keeps the best width_; of equal ones the earlier goes first.
void BeamSearch::finish(const Candidate& candidate) {
    const double score = candidate.sum / length_divisor_;
    const auto place =
        std::ranges::upper_bound(finished_, score, std::ranges::greater{}, &Finished::score);
    if (place == finished_.end() && finished_.size() == width_) return;
    finished_.insert(place, Finished{append(candidate), score, ends(candidate.token)});
    if (finished_.size() > width_) finished_.pop_back();
}

// Whether the best beam, were it to end here, would rank before the last answer.
bool BeamSearch::can_improve() const {
    if (finished_.size() < width_) return true;
    return beams_.front().sum / length_divisor_ > finished_.back().score;
}

std::vector<BeamSearch::Answer> BeamSearch::answers(std::size_t count) const {
    TROUPE_ASSERT(done_, "answers are known at the end");
    std::vector<Answer> best;
    for (const Finished& finished : finished_) {
        if (best.size() == count) break;
        Answer& answer = best.emplace_back();
        answer.score = finished.score;
        answer.ended = finished.ended;
        for (std::uint32_t node = finished.last; node != kPrompt; node = nodes_[node].before) {
            answer.tokens.push_back(nodes_[node].token);
            answer.logprobs.push_back(nodes_[node].logprob);
        }
        std::ranges::reverse(answer.tokens);
        std::ranges::reverse(answer.logprobs);
    }
    return best;
}

}  // namespace troupe::model
