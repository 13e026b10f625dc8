#include "model/json_pieces.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// Nearly all bytes are not, so that one look at each is to be enough.
constexpr std::array<bool, 256> kIsStructure = [] {
    std::array<bool, 256> table{};
    for (const char c : std::string_view("{}[],\""))
        table[static_cast<unsigned char>(c)] = true;
    return table;
}();

// Where the string ends whose first character is at `at`: at its quotation mark, or behind the
// text.
std::size_t string_end(std::string_view text, std::size_t at) {
    while (at < text.size() && text[at] != '"')
        at += text[at] == '\\' ? 2 : 1;
    return at;
}

std::string_view without_blanks(std::string_view text) {
    const std::size_t first = text.find_first_not_of(kBlanks);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Error not_json(std::string_view name, JsonPieces::Next found) {
    return invalid_input(fmt::format(
        "{}: {}", name,
        found == JsonPieces::Next::unfinished ? "it ends too early" : "it is no JSON object"));
}

// The value of a member that is called `name`, if it is a container; else empty.
std::string_view container_in(std::string_view member, std::string_view name) {
    member = without_blanks(member);
    if (member.size() < name.size() + 2 || member[0] != '"') return {};
    if (member.substr(1, name.size()) != name || member[name.size() + 1] != '"') return {};
    member = without_blanks(member.substr(name.size() + 2));
    if (!member.starts_with(':')) return {};
    member = without_blanks(member.substr(1));
    return member.starts_with('{') || member.starts_with('[') ? member : std::string_view();
}

}  // namespace

JsonPieces::JsonPieces(std::string_view container) : rest_(without_blanks(container)) {
    if (rest_.starts_with('{')) closing_ = '}';
    if (rest_.starts_with('[')) closing_ = ']';
}

std::size_t JsonPieces::piece_end() const {
    std::size_t depth = 0;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
        const char c = rest_[i];
        if (!kIsStructure[static_cast<unsigned char>(c)]) continue;
        if (c == '"') {
            i = string_end(rest_, i + 1);
        } else if (c == '{' || c == '[') {
            ++depth;
        } else {
            if (depth == 0) return i;
            if (c != ',') --depth;
        }
    }
    return rest_.npos;
}

JsonPieces::Next JsonPieces::next() {
    if (closing_ == '\0') return Next::malformed;
    const bool begins = std::exchange(begins_, false);
    bool ends = rest_.front() == closing_;
    if (begins || rest_.front() == ',') {
        rest_.remove_prefix(1);
        const std::size_t end = piece_end();
        if (end == rest_.npos) return Next::unfinished;
        piece_ = rest_.substr(0, end);
        rest_.remove_prefix(end);
        if (!without_blanks(piece_).empty()) return Next::piece;
        ends = begins && rest_.front() == closing_;
    }
    return ends && rest_.size() == 1 ? Next::end : Next::malformed;
}

std::size_t count_pieces(std::string_view container) {
    std::size_t count = 0;
    for (JsonPieces pieces(container); pieces.next() == JsonPieces::Next::piece;)
        ++count;
    return count;
}

JsonParts::JsonParts(std::string_view container, std::string_view name)
    : pieces_(container), name_(name) {
    text_.reserve(kPartBytesMax + 2 + simdjson::SIMDJSON_PADDING);
}

Result<> JsonParts::look_ahead() {
    ahead_.reset();
    const auto found = pieces_.next();
    if (found == JsonPieces::Next::end) return {};
    if (found != JsonPieces::Next::piece) return not_json(name_, found);
    ahead_ = pieces_.piece();
    if (ahead_->size() <= kPartBytesMax) return {};
    return invalid_input(fmt::format("{}: {} bytes of it are one value: {}", name_, ahead_->size(),
                                     log::escaped(*ahead_, 40)));
}

Result<std::optional<simdjson::dom::element>> JsonParts::next() {
    if (!std::exchange(has_begun_, true))
        if (auto looked = look_ahead(); !looked) return looked.error();
    if (!ahead_) return std::optional<simdjson::dom::element>();
    text_.assign(pieces_.is_object() ? "{" : "[");
    do {
        text_.append(text_.size() == 1 ? "" : ",").append(*ahead_);
        if (auto looked = look_ahead(); !looked) return looked.error();
    } while (ahead_ && text_.size() + ahead_->size() < kPartBytesMax);
    text_.append(pieces_.is_object() ? "}" : "]");
    simdjson::dom::element part;
    if (const auto error = parser_.parse(text_).get(part))
        return invalid_input(fmt::format("{}: {}", name_, simdjson::error_message(error)));
    return part;
}

Result<CutJson> cut_members(std::string_view text, std::string_view name,
                            std::initializer_list<std::string_view> names,
                            std::size_t rest_bytes_max) {
    CutJson out{.rest = "{", .values = std::vector<std::string_view>(names.size())};
    JsonPieces pieces(text);
    if (!pieces.is_object()) return not_json(name, JsonPieces::Next::malformed);
    auto found = pieces.next();
    for (; found == JsonPieces::Next::piece; found = pieces.next()) {
        bool is_cut = false;
        for (std::size_t i = 0; i < names.size() && !is_cut; ++i) {
            if (!out.values[i].empty()) continue;
            out.values[i] = container_in(pieces.piece(), names.begin()[i]);
            is_cut = !out.values[i].empty();
        }
        if (is_cut) continue;
        if (out.rest.size() + pieces.piece().size() > rest_bytes_max) {
            return invalid_input(fmt::format("{}: beside {} it has more than {} bytes", name,
                                             fmt::join(names, " and "), rest_bytes_max));
        }
        out.rest.append(out.rest.size() == 1 ? "" : ",").append(pieces.piece());
    }
    if (found != JsonPieces::Next::end) return not_json(name, found);
    out.rest.push_back('}');
    return out;
}

}  // namespace troupe::model
