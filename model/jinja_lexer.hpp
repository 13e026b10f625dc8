// Cuts a template's source into tokens: text outside the braces, and names, numbers, strings and
// operators inside. Whitespace control (trim_blocks, lstrip_blocks, the - and + marks, raw blocks,
// comments) is done here. Linear in the source.
// Rules: https://jinja.palletsprojects.com/en/stable/templates/#whitespace-control
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::model::jinja {

enum class TokenKind {
    text,         // outside the braces, ready for output
    print_begin,  // {{
    print_end,    // }}
    block_begin,  // {%
    block_end,    // %}
    name,
    string,  // `text` is what it stands for
    integer,
    real,
    op,   // `text` is the operator
    end,  // of the source
};

struct Token {
    TokenKind kind = TokenKind::end;
    std::string text;
    int line = 1;
    std::int64_t integer = 0;
    double real = 0;
};

struct LexerOptions {
    bool trim_blocks = true;    // a newline right after a block or comment is dropped
    bool lstrip_blocks = true;  // so are blanks between a line's start and a block or comment
};

// The last token is `end`. Throws TemplateError; the message names the line.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source, const LexerOptions& options);

}  // namespace troupe::model::jinja
