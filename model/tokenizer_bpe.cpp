#include "model/tokenizer_bpe.hpp"

#include <fmt/format.h>

#include "model/byte_level.hpp"
#include "model/utf8.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {

namespace {

void spelled_bytes_of_piece(std::string_view piece, TokenType, std::string& out) {
    append_spelled_bytes(out, piece);
}
void marked_bytes_of_piece(std::string_view piece, TokenType type, std::string& out) {
    append_marked_bytes(out, piece, type == TokenType::byte);
}

}  // namespace

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary, PreTokenizer pretokenizer, TokenizerData& data)
    : VocabularyTokenizer(std::move(vocabulary), data),
      pretokenizer_(std::move(pretokenizer)),
      spells_bytes_(data.spells_bytes),
      ignores_merges_(data.ignores_merges || pretokenizer_.ignore_merges()),
      fuses_unknown_(data.fuses_unknown),
      unknown_(data.unknown.value_or(-1)) {
    for (unsigned byte = 0; byte < 256; ++byte) {
        std::string spelling;
        if (spells_bytes_) {
            append_byte_spelling(spelling, static_cast<unsigned char>(byte));
        } else if (data.byte_fallback) {
            spelling = byte_piece(byte);
        }
        byte_tokens_[byte] = vocabulary_.find(spelling);
        if (byte_tokens_[byte] < 0) has_byte_tokens_ = false;
    }
}

Result<std::unique_ptr<const Tokenizer>> BpeTokenizer::make(TokenizerData data) {
    Result<Vocabulary> vocabulary =
        Vocabulary::make(data, data.spells_bytes ? spelled_bytes_of_piece : marked_bytes_of_piece);
    if (!vocabulary) return vocabulary.error();
    Result<PreTokenizer> pretokenizer = data.pretokenizer
                                            ? Result<PreTokenizer>(std::move(*data.pretokenizer))
                                            : PreTokenizer::make(data.pre);
    if (!pretokenizer) return pretokenizer.error();

    std::unique_ptr<BpeTokenizer> made(
        new BpeTokenizer(std::move(*vocabulary), std::move(*pretokenizer), data));
    if (Result<> set = made->set_add_bos(data.add_bos.value_or(false)); !set) return set.error();
    if (Result<> filled = made->fill_merges(data); !filled) return filled.error();
    if (!made->spells_bytes_) made->find_word_boundaries();
    made->fill_words();
    return std::unique_ptr<const Tokenizer>(std::move(made));
}

// Only what merging may make counts: other pieces stand for one character, or are never made.
void BpeTokenizer::find_word_boundaries() {
    words_are_separate_ = true;
    for (TokenId id = 0; id < vocabulary_.size() && words_are_separate_; ++id) {
        if (vocabulary_.type(id) != TokenType::normal) continue;
        const std::string_view text = piece(id);
        words_are_separate_ = text.empty() || marked_word_length(text) == text.size();
    }
}

Result<> BpeTokenizer::fill_merges(const TokenizerData& data) {
    merges_ = MergeTable(data.merges.size());
    std::string joined;
    for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
        const std::string_view line = data.merges[rank];
        // No piece has a space in it; the first byte may not be the separator.
        const std::size_t space = line.find(' ', 1);
        if (space == std::string_view::npos) {
            return invalid_input(fmt::format("merge {} of the tokenizer is not a pair: \"{}\"",
                                             rank, log::escaped(line)));
        }
        const std::string_view left = line.substr(0, space);
        const std::string_view right = line.substr(space + 1);
        joined.assign(left).append(right);
        const TokenId left_id = vocabulary_.find(left);
        const TokenId right_id = vocabulary_.find(right);
        const TokenId result = vocabulary_.find(joined);
        if (left_id < 0 || right_id < 0 || result < 0) {
            return invalid_input(
                fmt::format("merge {} of the tokenizer names a piece that is not "
                            "in its vocabulary: \"{}\"",
                            rank, log::escaped(line)));
        }
        // Text must never merge into a control token.
        if (vocabulary_.is_control(result)) continue;
        merges_.insert(left_id, right_id, {static_cast<std::uint32_t>(rank), result});
    }
    return {};
}

void BpeTokenizer::fill_words() {
    words_ = PieceTable(static_cast<std::size_t>(vocabulary_.size()));
    Queue queue;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
        if (vocabulary_.type(id) != TokenType::normal) continue;
        const std::string_view bytes = spells_bytes_ ? vocabulary_.bytes_of(id) : piece(id);
        if (bytes.empty()) continue;
        if (ignores_merges_) {
            words_.insert(bytes, id);
            continue;
        }
        merge_stretch(bytes, queue);
        std::size_t count = 0;
        TokenId last = -1;
        queue.for_each([&](TokenId token) {
            ++count;
            last = token;
        });
        if (count == 1 && last == id) words_.insert(bytes, id);
    }
}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
    Queue queue;
    encode_around_added(
        text, out, [&](std::string_view stretch) { encode_between_added(stretch, queue, out); });
}

void BpeTokenizer::encode_between_added(std::string_view text, Queue& queue,
                                        std::vector<TokenId>& out) const {
    const auto sink = [&](std::string_view stretch) { encode_stretch(stretch, queue, out); };
    for_each_valid_run(text, [&](std::string_view run, bool well_formed) {
        if (!well_formed) return sink(run);
        pretokenizer_.split(run, sink);
    });
}

void BpeTokenizer::encode_stretch(std::string_view bytes, Queue& queue,
                                  std::vector<TokenId>& out) const {
    while (!bytes.empty()) {
        const std::string_view word =
            words_are_separate_ ? bytes.substr(0, marked_word_length(bytes)) : bytes;
        if (const TokenId whole = words_.find(word); whole >= 0) {
            out.push_back(whole);
        } else {
            merge_stretch(word, queue);
            queue.for_each([&](TokenId id) { out.push_back(id); });
        }
        bytes.remove_prefix(word.size());
    }
}

void BpeTokenizer::merge_stretch(std::string_view bytes, Queue& queue) const {
    queue.clear();
    if (spells_bytes_) {
        for (const char byte : bytes) {
            const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
            if (id >= 0) queue.push(id);
        }
    } else {
        bool last_is_unknown = false;
        while (!bytes.empty()) {
            const std::size_t length = next_utf8(bytes).length;
            push_character(bytes.substr(0, length), queue, last_is_unknown);
            bytes.remove_prefix(length);
        }
    }
    queue.run([this](TokenId left, TokenId right) {
        const Merge merge = merges_.find(left, right);
        return Queue::Merged{merge.result >= 0, merge.rank, merge.result};
    });
}

void BpeTokenizer::push_character(std::string_view character, Queue& queue,
                                  bool& last_is_unknown) const {
    const TokenId id = vocabulary_.find(character);
    const bool usable = id >= 0 && !vocabulary_.is_control(id);
    const bool unknown = !usable && !has_byte_tokens_;
    if (usable) {
        queue.push(id);
    } else if (has_byte_tokens_) {
        for (const char byte : character)
            queue.push(byte_tokens_[static_cast<unsigned char>(byte)]);
    } else if (unknown_ >= 0 && !(fuses_unknown_ && last_is_unknown)) {
        queue.push(unknown_);
    }
    last_is_unknown = unknown;
}

}  // namespace troupe::model
