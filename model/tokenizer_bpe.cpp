#include "model/tokenizer_bpe.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include "model/byte_level.hpp"
#include "model/utf8.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {

namespace {

void spelled_bytes_of_piece(std::string_view piece, TokenType, std::string& out) {
    append_spelled_bytes(out, piece);
}

// How many of the leading bytes are whole code points, or else how many are none.
std::size_t run_length(std::string_view bytes, bool well_formed) {
    std::size_t at = 0;
    while (at < bytes.size()) {
        const Utf8Unit unit = next_utf8(bytes.substr(at));
        if ((unit.form == Utf8Form::complete) != well_formed) break;
        at += unit.length;
    }
    return at;
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> BpeTokenizer::make(const TokenizerData& data) {
    Result<Vocabulary> vocabulary = Vocabulary::make(data, spelled_bytes_of_piece);
    if (!vocabulary) return vocabulary.error();
    Result<PreTokenizer> pretokenizer = PreTokenizer::make(data.pre);
    if (!pretokenizer) return pretokenizer.error();

    std::unique_ptr<BpeTokenizer> made(
        new BpeTokenizer(std::move(*vocabulary), std::move(*pretokenizer)));
    if (Result<> set = made->set_add_bos(data.add_bos.value_or(false)); !set) return set.error();
    for (unsigned byte = 0; byte < 256; ++byte) {
        std::string spelling;
        append_byte_spelling(spelling, static_cast<unsigned char>(byte));
        made->byte_tokens_[byte] = made->vocabulary_.find(spelling);
    }
    if (Result<> filled = made->fill_merges(data); !filled) return filled.error();
    made->fill_words();
    return std::unique_ptr<const Tokenizer>(std::move(made));
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
        const std::string_view bytes = vocabulary_.bytes_of(id);
        if (bytes.empty()) continue;
        if (pretokenizer_.ignore_merges()) {
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
    if (simdjson::validate_utf8(text.data(), text.size())) {
        pretokenizer_.split(text, sink);
        return;
    }
    for (bool well_formed = true; !text.empty(); well_formed = !well_formed) {
        const std::size_t length = run_length(text, well_formed);
        const std::string_view run = text.substr(0, length);
        if (well_formed) {
            pretokenizer_.split(run, sink);
        } else {
            sink(run);
        }
        text.remove_prefix(length);
    }
}

void BpeTokenizer::encode_stretch(std::string_view bytes, Queue& queue,
                                  std::vector<TokenId>& out) const {
    if (bytes.empty()) return;
    if (const TokenId word = words_.find(bytes); word >= 0) {
        out.push_back(word);
        return;
    }
    merge_stretch(bytes, queue);
    queue.for_each([&](TokenId id) { out.push_back(id); });
}

void BpeTokenizer::merge_stretch(std::string_view bytes, Queue& queue) const {
    queue.clear();
    for (const char byte : bytes) {
        const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
        if (id >= 0) queue.push(id);
    }
    queue.run([this](TokenId left, TokenId right) {
        const Merge merge = merges_.find(left, right);
        return Queue::Merged{merge.result >= 0, merge.rank, merge.result};
    });
}

}  // namespace troupe::model
