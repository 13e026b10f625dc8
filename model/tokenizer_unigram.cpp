#include "model/tokenizer_unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/byte_level.hpp"
#include "model/utf8.hpp"

namespace troupe::model {

namespace {

constexpr double unknown_penalty = 10;

void bytes_of_unigram_piece(std::string_view piece, TokenType type, std::string& out) {
    append_marked_bytes(out, piece, type == TokenType::byte);
}

std::size_t bytes_of_all(const Vocabulary& vocabulary) {
    std::size_t bytes = 0;
    for (TokenId id = 0; id < vocabulary.size(); ++id)
        bytes += vocabulary.piece(id).size();
    return bytes;
}

}  // namespace

struct UnigramTokenizer::Step {
    double score = 0;
    std::size_t begin = 0;  // of the piece that ends here
    TokenId id = -1;        // -1: an unknown character
    bool reached = false;
};

UnigramTokenizer::UnigramTokenizer(Vocabulary vocabulary, TokenizerData& data)
    : VocabularyTokenizer(std::move(vocabulary), data),
      pieces_(bytes_of_all(vocabulary_)),
      scores_(std::move(data.scores)),
      unknown_(data.unknown.value_or(-1)) {
    if (data.pretokenizer) pretokenizer_ = std::move(*data.pretokenizer);
    double least = 0;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
        const TokenType type = vocabulary_.type(id);
        if (type == TokenType::unknown && unknown_ < 0) unknown_ = id;
        // Pieces of bytes, too: "<0x0A>" in a text is that token, as in Hugging Face tokenizers.
        const bool usable = type == TokenType::normal || type == TokenType::byte;
        if (!usable || piece(id).empty()) continue;
        pieces_.insert(piece(id), id);
        least = std::min<double>(least, scores_[static_cast<std::size_t>(id)]);
    }
    unknown_score_ = least - unknown_penalty;
    has_byte_tokens_ = data.byte_fallback;
    for (unsigned byte = 0; byte < 256; ++byte) {
        byte_tokens_[byte] = vocabulary_.find(byte_piece(byte));
        if (byte_tokens_[byte] < 0) has_byte_tokens_ = false;
    }
}

Result<std::unique_ptr<const Tokenizer>> UnigramTokenizer::make(TokenizerData data) {
    if (data.scores.size() != data.tokens.size()) {
        return invalid_input(
            fmt::format("{} token scores for {} tokens", data.scores.size(), data.tokens.size()));
    }
    const auto bad = std::find_if_not(data.scores.begin(), data.scores.end(),
                                      [](float score) { return std::isfinite(score); });
    if (bad != data.scores.end()) return invalid_input("a token's score is not a number");
    Result<Vocabulary> vocabulary = Vocabulary::make(data, bytes_of_unigram_piece);
    if (!vocabulary) return vocabulary.error();
    std::unique_ptr<UnigramTokenizer> made(new UnigramTokenizer(std::move(*vocabulary), data));
    if (Result<> set = made->set_add_bos(data.add_bos.value_or(false)); !set) return set.error();
    return std::unique_ptr<const Tokenizer>(std::move(made));
}

void UnigramTokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
    encode_around_added(text, out, [&](std::string_view stretch) {
        for_each_valid_run(stretch, [&](std::string_view run, bool well_formed) {
            if (!well_formed) return append_unknown(run, out);
            pretokenizer_.split(run, [&](std::string_view part) { encode_stretch(part, out); });
        });
    });
}

void UnigramTokenizer::encode_stretch(std::string_view text, std::vector<TokenId>& out) const {
    std::vector<Step> steps(text.size() + 1);
    steps[0].reached = true;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const Step& here = steps[at];
        if (!here.reached) continue;  // the middle of a character, or of nothing
        const auto offer = [&](std::size_t length, double score, TokenId id) {
            Step& there = steps[at + length];
            if (there.reached && here.score + score <= there.score) return;
            there = {here.score + score, at, id, true};
        };
        const std::size_t character = next_utf8(text.substr(at)).length;
        bool known = false;
        pieces_.for_each_prefix(text.substr(at), [&](std::size_t length, TokenId id) {
            offer(length, scores_[static_cast<std::size_t>(id)], id);
            known = known || length == character;
        });
        if (!known) offer(character, unknown_score_, -1);
    }
    std::vector<std::pair<std::size_t, TokenId>> path;  // begins, last first
    for (std::size_t end = text.size(); end > 0; end = steps[end].begin) {
        const bool fuses = !path.empty() && path.back().second < 0 && steps[end].id < 0;
        if (fuses) path.pop_back();
        path.emplace_back(steps[end].begin, steps[end].id);
    }
    for (std::size_t i = path.size(); i > 0; --i) {
        const auto [begin, id] = path[i - 1];
        const std::size_t end = i > 1 ? path[i - 2].first : text.size();
        if (id >= 0) {
            out.push_back(id);
        } else {
            append_unknown(text.substr(begin, end - begin), out);
        }
    }
}

void UnigramTokenizer::append_unknown(std::string_view text, std::vector<TokenId>& out) const {
    if (has_byte_tokens_) {
        for (const char byte : text)
            out.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
    } else if (unknown_ >= 0) {
        out.push_back(unknown_);
    }
}

}  // namespace troupe::model
