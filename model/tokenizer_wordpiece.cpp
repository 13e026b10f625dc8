#include "model/tokenizer_wordpiece.hpp"

#include <algorithm>

#include "model/byte_level.hpp"
#include "model/utf8.hpp"

namespace troupe::model {

namespace {

// "##ing" goes on a word; other pieces begin one, and a blank stands before it.
void bytes_of_word_piece(std::string_view piece, TokenType, std::string& out) {
    if (piece.starts_with("##")) {
        out += piece.substr(2);
    } else {
        out.push_back(' ');
        out += piece;
    }
}
void bytes_of_marked_piece(std::string_view piece, TokenType, std::string& out) {
    append_marked_bytes(out, piece, false);
}

std::size_t count_characters(std::string_view text) {
    std::size_t count = 0;
    for (; !text.empty(); ++count)
        text.remove_prefix(next_utf8(text).length);
    return count;
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(Vocabulary vocabulary, TokenizerData& data)
    : VocabularyTokenizer(std::move(vocabulary), data),
      pieces_(static_cast<std::size_t>(vocabulary_.size())),
      word_prefix_(data.word_prefix),
      continuation_prefix_(data.continuation_prefix),
      word_characters_max_(data.word_characters_max),
      unknown_(data.unknown.value_or(-1)) {
    if (data.pretokenizer) pretokenizer_ = std::move(*data.pretokenizer);
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
        if (vocabulary_.type(id) == TokenType::unknown && unknown_ < 0) unknown_ = id;
        if (vocabulary_.type(id) != TokenType::normal) continue;
        pieces_.insert(piece(id), id);
        piece_bytes_max_ = std::max(piece_bytes_max_, piece(id).size());
    }
}

Result<std::unique_ptr<const Tokenizer>> WordPieceTokenizer::make(TokenizerData data) {
    Result<Vocabulary> vocabulary = Vocabulary::make(
        data, data.word_prefix.empty() ? bytes_of_word_piece : bytes_of_marked_piece);
    if (!vocabulary) return vocabulary.error();
    std::unique_ptr<WordPieceTokenizer> made(new WordPieceTokenizer(std::move(*vocabulary), data));
    if (Result<> set = made->set_add_bos(data.add_bos.value_or(false)); !set) return set.error();
    return std::unique_ptr<const Tokenizer>(std::move(made));
}

void WordPieceTokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
    encode_around_added(text, out, [&](std::string_view stretch) {
        for_each_valid_run(stretch, [&](std::string_view run, bool well_formed) {
            if (!well_formed) return encode_word(run, out);
            pretokenizer_.split(run, [&](std::string_view word) { encode_word(word, out); });
        });
    });
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<TokenId>& out) const {
    const std::size_t before = out.size();
    bool fits =
        word.size() <= word_characters_max_ || count_characters(word) <= word_characters_max_;
    std::string spelling;
    for (std::size_t at = 0; fits && at < word.size();) {
        const std::string& prefix = at == 0 ? word_prefix_ : continuation_prefix_;
        TokenId found = -1;
        std::size_t length = std::min(word.size() - at, piece_bytes_max_);
        for (; length > 0; --length) {
            spelling.assign(prefix).append(word.substr(at, length));
            found = pieces_.find(spelling);
            if (found >= 0) break;
        }
        if (found >= 0) out.push_back(found);
        fits = found >= 0;
        at += length;
    }
    if (fits) return;
    out.resize(before);
    if (unknown_ >= 0) out.push_back(unknown_);
}

}  // namespace troupe::model
