#include "model/jinja_lexer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "model/jinja_value.hpp"
#include "model/utf8.hpp"

namespace troupe::model::jinja {

namespace {

bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_name_start(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_name_part(char c) {
    return is_name_start(c) || is_digit(c);
}

// Line ends become "\n", and one at the very end is dropped.
std::string normalise(std::string_view source) {
    std::string text;
    text.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            text.push_back('\n');
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            text.push_back(source[i]);
        }
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

class Lexer {
 public:
    Lexer(std::string_view source, const LexerOptions& options)
        : source_(source), options_(options) {}

    std::vector<Token> run() {
        while (at_ < source_.size())
            lex_text();
        add(TokenKind::end);
        return std::move(tokens_);
    }

 private:
    [[noreturn]] void fail(const std::string& what) const {
        throw TemplateError(fmt::format("line {}: {}", line_, what));
    }

    [[nodiscard]] std::string_view rest() const { return source_.substr(at_); }

    void advance(std::size_t count) {
        line_ += static_cast<int>(
            std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                       source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
        at_ += count;
    }

    void add(TokenKind kind, std::string_view text = {}) {
        tokens_.push_back({kind, std::string(text), line_, 0, 0});
    }

    void skip_blanks() {
        std::size_t count = 0;
        while (at_ + count < source_.size() && is_blank(source_[at_ + count]))
            ++count;
        advance(count);
    }

    // From here to the next opening brace, which is then dealt with.
    void lex_text() {
        std::size_t open = at_;
        while (open < source_.size() && !is_opening(open))
            ++open;
        const std::string_view text = source_.substr(at_, open - at_);
        if (open == source_.size()) {
            add_text(text);
            advance(text.size());
            return;
        }
        const char kind = source_[open + 1];
        const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
        add_text(strip_before_tag(text, mark, kind != '{'));
        advance(text.size() + 2 + (mark == '-' || mark == '+' ? 1 : 0));
        if (kind == '#') {
            lex_comment();
        } else if (kind == '{') {
            add(TokenKind::print_begin);
            lex_inside("}}", TokenKind::print_end);
        } else if (!lex_raw()) {
            add(TokenKind::block_begin);
            lex_inside("%}", TokenKind::block_end);
        }
        after_newline_ = at_ > 0 && source_[at_ - 1] == '\n';
    }

    [[nodiscard]] bool is_opening(std::size_t at) const {
        if (source_[at] != '{' || at + 1 >= source_.size()) return false;
        const char next = source_[at + 1];
        return next == '{' || next == '%' || next == '#';
    }

    [[nodiscard]] std::string_view strip_before_tag(std::string_view text, char mark,
                                                    bool may_strip_line) const {
        if (mark == '-') {
            while (!text.empty() && is_blank(text.back()))
                text.remove_suffix(1);
            return text;
        }
        if (mark == '+' || !options_.lstrip_blocks || !may_strip_line) return text;
        const std::size_t newline = text.rfind('\n');
        const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
        if (line_begin == 0 && !after_newline_) return text;
        const std::string_view indent = text.substr(line_begin);
        const bool blank = std::all_of(indent.begin(), indent.end(), is_blank);
        return blank ? text.substr(0, line_begin) : text;
    }

    void add_text(std::string_view text) {
        if (!text.empty()) add(TokenKind::text, text);
    }

    // Past the end of a block or comment: "-%}" takes all blanks after it, "%}" one newline where
    // blocks are trimmed, "+%}" nothing. `at_` is at the closing brace's mark or at the brace.
    void finish_tag(bool trims) {
        const char mark = source_[at_];
        advance(mark == '-' || mark == '+' ? 3 : 2);
        if (mark == '-') {
            skip_blanks();
        } else if (mark != '+' && trims && rest().starts_with('\n')) {
            advance(1);
        }
    }

    void lex_comment() {
        const std::size_t close = source_.find("#}", at_);
        if (close == std::string_view::npos) fail("a comment is not closed");
        const bool marked = close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
        advance(close - at_ - (marked ? 1 : 0));
        finish_tag(options_.trim_blocks);
    }

    // The length of `{% name %}` without its opening brace, if that is what stands at `at`, up to
    // its closing mark or brace; else 0.
    [[nodiscard]] std::size_t match_tag_name(std::size_t at, std::string_view name,
                                             bool may_end_in_plus) const {
        const std::size_t begin = at;
        while (at < source_.size() && is_blank(source_[at]))
            ++at;
        if (!source_.substr(at).starts_with(name)) return 0;
        at += name.size();
        while (at < source_.size() && is_blank(source_[at]))
            ++at;
        const std::string_view close = source_.substr(at);
        const bool closed = close.starts_with("%}") || close.starts_with("-%}") ||
                            (may_end_in_plus && close.starts_with("+%}"));
        return closed ? at - begin : 0;
    }

    // A raw block: its text goes out as it stands. False where there is none here.
    bool lex_raw() {
        const std::size_t length = match_tag_name(at_, "raw", false);
        if (length == 0) return false;
        advance(length);
        finish_tag(false);
        for (std::size_t open = source_.find("{%", at_); open != std::string_view::npos;
             open = source_.find("{%", open + 2)) {
            const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
            const std::size_t name_at = open + 2 + (mark == '-' || mark == '+' ? 1 : 0);
            const std::size_t end_length = match_tag_name(name_at, "endraw", true);
            if (end_length == 0) continue;
            after_newline_ = at_ > 0 && source_[at_ - 1] == '\n';
            add_text(strip_before_tag(source_.substr(at_, open - at_), mark, true));
            advance(name_at + end_length - at_);
            finish_tag(options_.trim_blocks);
            return true;
        }
        fail("a raw block is not closed");
    }

    void lex_inside(std::string_view close, TokenKind end_kind) {
        std::vector<char> brackets;
        while (true) {
            skip_blanks();
            if (at_ >= source_.size()) fail("a tag is not closed");
            if (brackets.empty() && is_closing(close)) {
                add(end_kind);
                finish_tag(end_kind == TokenKind::block_end && options_.trim_blocks);
                return;
            }
            lex_token(brackets);
        }
    }

    [[nodiscard]] bool is_closing(std::string_view close) const {
        if (rest().starts_with(close)) return true;
        const bool marked = source_[at_] == '-' || (source_[at_] == '+' && close == "%}");
        return marked && rest().substr(1).starts_with(close);
    }

    void lex_token(std::vector<char>& brackets) {
        const char c = source_[at_];
        if (is_name_start(c)) {
            std::size_t count = 1;
            while (at_ + count < source_.size() && is_name_part(source_[at_ + count]))
                ++count;
            add(TokenKind::name, rest().substr(0, count));
            advance(count);
        } else if (is_digit(c)) {
            lex_number();
        } else if (c == '"' || c == '\'') {
            lex_string(c);
        } else {
            lex_operator(brackets);
        }
    }

    void lex_number() {
        std::string digits;
        std::size_t count = 0;
        bool real = false;
        const auto take_digits = [&] {
            while (at_ + count < source_.size() &&
                   (is_digit(source_[at_ + count]) || source_[at_ + count] == '_')) {
                if (source_[at_ + count] != '_') digits.push_back(source_[at_ + count]);
                ++count;
            }
        };
        const auto peek = [&](std::size_t ahead) {
            return at_ + count + ahead < source_.size() ? source_[at_ + count + ahead] : '\0';
        };
        take_digits();
        const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // "a.0.1" is two items
        if (!after_dot && peek(0) == '.' && is_digit(peek(1))) {
            real = true;
            digits.push_back('.');
            ++count;
            take_digits();
        }
        const std::size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
        if ((peek(0) == 'e' || peek(0) == 'E') && is_digit(peek(1 + sign))) {
            real = true;
            digits += 'e';
            if (sign) digits.push_back(peek(1));
            count += 1 + sign;
            take_digits();
        }
        Token token{real ? TokenKind::real : TokenKind::integer, digits, line_, 0, 0};
        const char* end = digits.data() + digits.size();
        const auto parsed = real ? std::from_chars(digits.data(), end, token.real)
                                 : std::from_chars(digits.data(), end, token.integer);
        if (parsed.ec != std::errc() || parsed.ptr != end) fail("a number is too large: " + digits);
        tokens_.push_back(std::move(token));
        advance(count);
    }

    void lex_string(char quote) {
        const int first_line = line_;
        std::string text;
        std::size_t i = at_ + 1;
        while (i < source_.size() && source_[i] != quote) {
            if (source_[i] == '\\' && i + 1 < source_.size()) {
                i = take_escape(i + 1, text);
            } else {
                text.push_back(source_[i++]);
            }
        }
        if (i >= source_.size()) fail("a string is not closed");
        tokens_.push_back({TokenKind::string, std::move(text), first_line, 0, 0});
        advance(i + 1 - at_);
    }

    // `i` is at the character after the backslash; gives where to go on.
    std::size_t take_escape(std::size_t i, std::string& text) const {
        constexpr std::string_view names = "ntrbfav\\'\"";
        constexpr std::string_view meanings = "\n\t\r\b\f\a\v\\'\"";
        const char name = source_[i];
        if (name == '\n') return i + 1;
        if (const std::size_t at = names.find(name); at != std::string_view::npos) {
            text.push_back(meanings[at]);
            return i + 1;
        }
        const std::size_t digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
        if (digits > 0 && i + digits < source_.size()) {
            std::uint32_t code_point = 0;
            const char* begin = source_.data() + i + 1;
            const auto parsed = std::from_chars(begin, begin + digits, code_point, 16);
            const bool valid = parsed.ptr == begin + digits && code_point <= 0x10FFFF &&
                               (code_point < 0xD800 || code_point > 0xDFFF);
            if (!valid) fail("a string has an escape that is no character");
            append_utf8(text, code_point);
            return i + 1 + digits;
        }
        text.push_back('\\');
        return i;
    }

    void lex_operator(std::vector<char>& brackets) {
        constexpr std::array<std::string_view, 6> pairs = {"==", "!=", "<=", ">=", "//", "**"};
        constexpr std::string_view singles = "+-*/%~()[]{}<>=.:|,;";
        const std::string_view two = rest().substr(0, 2);
        if (std::find(pairs.begin(), pairs.end(), two) != pairs.end()) {
            add(TokenKind::op, two);
            advance(2);
            return;
        }
        const char c = source_[at_];
        if (singles.find(c) == std::string_view::npos) {
            fail(fmt::format("unexpected character 0x{:02X}", static_cast<unsigned char>(c)));
        }
        if (c == '(') brackets.push_back(')');
        if (c == '[') brackets.push_back(']');
        if (c == '{') brackets.push_back('}');
        if (c == ')' || c == ']' || c == '}') {
            if (brackets.empty() || brackets.back() != c) fail(fmt::format("unexpected '{}'", c));
            brackets.pop_back();
        }
        add(TokenKind::op, rest().substr(0, 1));
        advance(1);
    }

    std::string_view source_;
    LexerOptions options_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool after_newline_ = true;  // the last tag swallowed a newline, or this is the beginning
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const LexerOptions& options) {
    const std::string text = normalise(source);
    return Lexer(text, options).run();
}

}  // namespace troupe::model::jinja
