#include "model/toy_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/assert.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

enum Word : TokenId { end, the, cat, dog, sat, ran, on, mat, away, quickly };

using Row = std::array<float, kToyWords.size()>;

struct Score {
    Word next;
    float score;
};

template <std::size_t n>
constexpr Row row_of(const Score (&scores)[n]) {
    Row row;
    row.fill(-2);
    for (const Score& s : scores)
        row[s.next] = s.score;
    return row;
}

// By the last word, in id order.
constexpr std::array<Row, kToyWords.size()> kRows{
    row_of({{end, -2.0F}}),
    row_of({{cat, 3.0F}, {dog, 2.6F}, {mat, 1.5F}}),
    row_of({{sat, 3.0F}, {ran, 2.0F}, {quickly, 0.5F}}),
    row_of({{ran, 3.0F}, {sat, 1.8F}}),
    row_of({{on, 3.5F}, {quickly, 0.8F}}),
    row_of({{away, 3.0F}, {quickly, 2.5F}}),
    row_of({{the, 4.0F}}),
    row_of({{end, 3.0F}}),
    row_of({{end, 3.0F}}),
    row_of({{end, 2.0F}, {away, 1.0F}}),
};

// The words' bytes with their space in front, as views into one string.
constexpr std::array<std::string_view, kToyWords.size()> kSpacedWords{
    "", " the", " cat", " dog", " sat", " ran", " on", " mat", " away", " quickly"};

std::optional<TokenId> find_word(std::string_view word) {
    for (std::size_t id = 0; id < kToyWords.size(); ++id) {
        if (kToyWords[id] == word) return static_cast<TokenId>(id);
    }
    return std::nullopt;
}

// Calls use(word) for each stretch of anything but white space.
template <class Use>
void for_each_word(std::string_view text, Use use) {
    constexpr std::string_view kSpace = " \t\r\n";
    for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;) {
        const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
        use(text.substr(begin, end - begin));
        begin = text.find_first_not_of(kSpace, end);
    }
}

std::size_t index_of(TokenId id) {
    TROUPE_ASSERT(id >= 0 && static_cast<std::size_t>(id) < kToyWords.size());
    return static_cast<std::size_t>(id);
}

}  // namespace

std::span<const float, kToyWords.size()> toy_scores(TokenId last) {
    return kRows[index_of(last)];
}

Result<std::vector<TokenId>> ToyTokenizer::parse(std::string_view text) {
    std::vector<TokenId> ids;
    std::optional<Error> error;
    for_each_word(text, [&](std::string_view word) {
        const auto id = find_word(word);
        if (id && *id != kToyEnd) {
            ids.push_back(*id);
        } else if (!error) {
            error =
                invalid_input(fmt::format("the toy model does not know the word \"{}\"; it "
                                          "knows the cat dog sat ran on mat away quickly",
                                          log::escaped(word)));
        }
    });
    if (error) return std::move(*error);
    return ids;
}

std::string ToyTokenizer::decode(std::span<const TokenId> ids) {
    std::string text;
    for (const TokenId id : ids)
        text += kSpacedWords[index_of(id)];
    if (!text.empty()) text.erase(0, 1);
    return text;
}

void ToyTokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
    for_each_word(text, [&](std::string_view word) {
        const auto id = find_word(word);
        if (id && !is_control(*id)) out.push_back(*id);
    });
}

std::optional<ControlMatch> ToyTokenizer::next_control(std::string_view text,
                                                       std::size_t from) const {
    const std::string_view spelling = kToyWords[kToyEnd];
    const std::size_t begin = text.find(spelling, from);
    if (begin == std::string_view::npos) return std::nullopt;
    return ControlMatch{begin, begin + spelling.size(), kToyEnd};
}

std::string_view ToyTokenizer::piece(TokenId id) const {
    return kToyWords[index_of(id)];
}

std::string_view ToyTokenizer::bytes_of(TokenId id) const {
    return kSpacedWords[index_of(id)];
}

std::optional<TokenId> ToyTokenizer::find(std::string_view piece) const {
    return find_word(piece);
}

std::span<const TokenId> ToyTokenizer::end_tokens() const {
    static constexpr std::array<TokenId, 1> kEnds{kToyEnd};
    return kEnds;
}

}  // namespace troupe::model
