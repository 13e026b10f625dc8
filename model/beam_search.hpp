// Beam search: the best few beginnings of an answer go on side by side, ranked by the sum of their
// tokens' log-probabilities; those that have ended compete by sum / length^length_penalty. A pure
// core: rows of candidates in, who goes on with which token out; no model, no pages.
//
// The rules are those of transformers 4.57, generate(num_beams=k, do_sample=False) with its default
// early_stopping=False. Equal sums, which it leaves open, go to the lower beam, then the lower
// token id. Sums are in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/decoding_params.hpp"
#include "model/step.hpp"

namespace troupe::model {

class BeamSearch {
 public:
    // A beam of the next step: beam `parent` of this one, and one token more.
    struct Move {
        std::uint32_t parent = 0;
        TokenId token = 0;
        friend bool operator==(const Move&, const Move&) = default;
    };
    struct Answer {
        std::vector<TokenId> tokens;  // the one that ended it included
        std::vector<float> logprobs;  // of each
        bool ended = false;           // by its last token, not by the limit
        double score = 0;             // sum of them / length^length_penalty
    };

    // Of `params` it obeys beam_width, length_penalty, min_tokens, ignore_eos and stop_token_ids.
    // `end_tokens`: all of the model's. `length_max` >= 1: tokens of an answer. Begins with one
    // beam, the prompt.
    BeamSearch(const DecodingParams& params, std::span<const TokenId> end_tokens,
               std::uint32_t length_max);

    // How many of a row's best tokens advance() must see to be right.
    [[nodiscard]] std::uint32_t candidates_needed() const;

    // rows[i]: the best tokens after beam i, by falling log-probability (of the softmax of the raw
    // scores), then rising id. Not after done().
    void advance(std::span<const std::vector<TokenLogprob>> rows);

    // The beams of the next step, best first; none once it is done.
    [[nodiscard]] std::span<const Move> moves() const { return moves_; }
    [[nodiscard]] bool done() const { return done_; }

    // The best `count` answers of a search that is done, best first; fewer where the vocabulary is
    // too small to give so many.
    [[nodiscard]] std::vector<Answer> answers(std::size_t count) const;

 private:
    static constexpr std::uint32_t kPrompt = 0xffffffff;

    // A token of some beams: they share what they have in common.
    struct Node {
        std::uint32_t before = kPrompt;
        TokenId token = 0;
        float logprob = 0;
    };
    struct Beam {
        std::uint32_t last = kPrompt;  // node
        double sum = 0;
    };
    struct Candidate {
        std::uint32_t parent = 0;
        TokenId token = 0;
        float logprob = 0;
        double sum = 0;
    };
    struct Finished {
        std::uint32_t last = kPrompt;  // node
        double score = 0;
        bool ended = false;  // by its last token
    };

    void rank_candidates(std::span<const std::vector<TokenLogprob>> rows);
    [[nodiscard]] bool is_banned(TokenId token) const;
    [[nodiscard]] bool ends(TokenId token) const;
    [[nodiscard]] std::uint32_t append(const Candidate& candidate);
    void finish(const Candidate& candidate);
    [[nodiscard]] bool can_improve() const;

    const std::uint32_t width_;
    const double length_penalty_;
    const std::uint32_t length_max_;
    const std::uint32_t min_tokens_;
    const bool ignore_end_tokens_;
    const std::vector<TokenId> end_tokens_;
    const std::vector<TokenId> stop_tokens_;

    std::vector<Node> nodes_;
    std::vector<Beam> beams_{Beam{}};
    std::vector<Finished> finished_;  // at most width_, best first
    std::vector<Move> moves_;
    std::uint32_t length_ = 0;   // tokens of every beam
    double length_divisor_ = 1;  // length_^length_penalty
    bool done_ = false;

    std::vector<Candidate> candidates_;  // of the step being made
    std::vector<Beam> next_beams_;
};

}  // namespace troupe::model
