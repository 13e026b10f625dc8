#include "model/tokenizer_spm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/byte_level.hpp"
#include "model/utf8.hpp"

namespace troupe::model {

namespace {

void bytes_of_spm_piece(std::string_view piece, TokenType type, std::string& out) {
    append_marked_bytes(out, piece, type == TokenType::byte);
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> SpmTokenizer::make(const TokenizerData& data) {
    if (data.scores.size() != data.tokens.size()) {
        return invalid_input(
            fmt::format("{} token scores for {} tokens", data.scores.size(), data.tokens.size()));
    }
    Result<Vocabulary> vocabulary = Vocabulary::make(data, bytes_of_spm_piece);
    if (!vocabulary) return vocabulary.error();

    std::unique_ptr<SpmTokenizer> made(new SpmTokenizer(std::move(*vocabulary)));
    if (Result<> set = made->set_add_bos(data.add_bos.value_or(true)); !set) return set.error();
    made->add_space_prefix_ = data.add_space_prefix.value_or(true);
    made->scores_ = data.scores;
    made->mergeable_ = PieceTable(data.tokens.size());
    for (TokenId id = 0; id < made->vocabulary_size(); ++id) {
        const TokenType type = made->vocabulary_.type(id);
        if (std::isnan(data.scores[static_cast<std::size_t>(id)])) {
            return invalid_input(fmt::format("the score of token {} is not a number", id));
        }
        if (type == TokenType::normal || type == TokenType::user_defined) {
            made->mergeable_.insert(made->piece(id), id);
        }
        if (type == TokenType::unknown && made->unknown_ < 0) made->unknown_ = id;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        const TokenId id = made->vocabulary_.find(byte_piece(byte));
        const bool is_byte = id >= 0 && made->vocabulary_.type(id) == TokenType::byte;
        made->byte_tokens_[byte] = is_byte ? id : -1;
    }
    made->fill_words();
    return std::unique_ptr<const Tokenizer>(std::move(made));
}

void SpmTokenizer::fill_words() {
    words_are_separate_ = true;
    whole_words_ = PieceTable(static_cast<std::size_t>(vocabulary_.size()));
    Queue queue;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
        const std::string_view word = piece(id);
        if (word.empty() || mergeable_.find(word) != id) continue;
        if (marked_word_length(word) != word.size()) words_are_separate_ = false;
        merge_word(word, queue);
        std::size_t count = 0;
        queue.for_each([&count](Span) { ++count; });
        if (count == 1) whole_words_.insert(word, id);
    }
}

void SpmTokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
    Queue queue;
    encode_around_added(
        text, out, [&](std::string_view stretch) { encode_between_added(stretch, queue, out); });
}

void SpmTokenizer::encode_between_added(std::string_view text, Queue& queue,
                                        std::vector<TokenId>& out) const {
    if (text.empty()) return;
    std::string marked;
    marked.reserve(text.size() + text.size() / 2);
    if (add_space_prefix_) marked += space_mark;
    for (const char byte : text) {
        if (byte == ' ') {
            marked += space_mark;
        } else {
            marked.push_back(byte);
        }
    }
    std::string_view rest = marked;
    while (!rest.empty()) {
        const std::size_t length = words_are_separate_ ? marked_word_length(rest) : rest.size();
        encode_word(rest.substr(0, length), queue, out);
        rest.remove_prefix(length);
    }
}

void SpmTokenizer::encode_word(std::string_view word, Queue& queue,
                               std::vector<TokenId>& out) const {
    if (const TokenId id = whole_words_.find(word); id >= 0) {
        out.push_back(id);
        return;
    }
    merge_word(word, queue);
    queue.for_each([&](Span span) { emit(word.substr(span.begin, span.length), out); });
}

void SpmTokenizer::merge_word(std::string_view word, Queue& queue) const {
    queue.clear();
    for (std::size_t at = 0; at < word.size();) {
        const std::size_t length = next_utf8(word.substr(at)).length;
        queue.push({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(length)});
        at += length;
    }
    queue.run([&](Span left, Span right) {
        const Span both{left.begin, left.length + right.length};
        const TokenId id = mergeable_.find(word.substr(both.begin, both.length));
        if (id < 0) return Queue::Merged{};
        return Queue::Merged{true, -scores_[static_cast<std::size_t>(id)], both};
    });
}

void SpmTokenizer::emit(std::string_view symbol, std::vector<TokenId>& out) const {
    if (const TokenId id = mergeable_.find(symbol); id >= 0) {
        out.push_back(id);
        return;
    }
    bool unknown = false;
    for (const char byte : symbol) {
        const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
        if (id >= 0) out.push_back(id);
        unknown = unknown || id < 0;
    }
    if (unknown && unknown_ >= 0) out.push_back(unknown_);
}

}  // namespace troupe::model
