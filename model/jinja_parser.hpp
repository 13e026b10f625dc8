// Builds the tree of a template from its tokens. Recursive descent, bounded by `depth_max`.
// Grammar: https://jinja.palletsprojects.com/en/stable/templates/, with loop controls and the
// `generation` block of chat templates; include, import, extends and block are refused.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja_ast.hpp"
#include "model/jinja_lexer.hpp"

namespace troupe::model::jinja {

class Parser {
 public:
    explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    // Throws TemplateError; the message names the line.
    [[nodiscard]] Block parse_template();

 private:
    // Counts how deep the parser is; statements and expressions alike.
    class Nesting {
     public:
        explicit Nesting(Parser& parser) : parser_(parser) {
            if (++parser_.nesting_ > depth_max) parser_.fail("it is nested too deeply");
        }
        ~Nesting() { --parser_.nesting_; }
        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;

     private:
        Parser& parser_;
    };
    using Names = std::initializer_list<std::string_view>;

    [[noreturn]] void fail(const std::string& what) const;
    [[nodiscard]] const Token& token() const { return tokens_[at_]; }
    [[nodiscard]] const Token& token_after(std::size_t count) const;
    Token take();
    [[nodiscard]] bool at_op(std::string_view op) const;
    [[nodiscard]] bool at_name(std::string_view name) const;
    bool take_op(std::string_view op);
    bool take_name(std::string_view name);
    void expect_op(std::string_view op);
    void expect_name(std::string_view name);
    void expect(TokenKind kind, std::string_view what);
    std::string expect_identifier();

    // jinja_parser_statements.cpp. A body ends at one of `ends`, whose name is left to be taken.
    Block parse_body(Names ends);
    void parse_block_tag(Block& into);
    void end_tag();
    Statement parse_if();
    Statement parse_for();
    Statement parse_set();
    Statement parse_macro();
    Statement parse_call();
    Statement parse_filter_block();
    Statement parse_with();
    void parse_generation(Block& into);
    std::vector<MacroStatement::Parameter> parse_parameters();
    std::vector<std::string> parse_targets(bool& unpacks);

    // jinja_parser_expressions.cpp, loosest binding first.
    ExpressionPtr parse_expression();
    ExpressionPtr parse_expression_or_tuple();
    ExpressionPtr parse_or();
    ExpressionPtr parse_and();
    ExpressionPtr parse_not();
    ExpressionPtr parse_compare();
    ExpressionPtr parse_sum();
    ExpressionPtr parse_concat();
    ExpressionPtr parse_product();
    ExpressionPtr parse_power();
    ExpressionPtr parse_unary(bool with_filters);
    ExpressionPtr parse_primary();
    ExpressionPtr parse_name_or_literal();
    ExpressionPtr parse_parenthesised();
    ExpressionPtr parse_list();
    ExpressionPtr parse_dict();
    ExpressionPtr parse_postfix(ExpressionPtr expression);
    ExpressionPtr parse_subscript(ExpressionPtr object);
    ExpressionPtr parse_filters_and_tests(ExpressionPtr expression);
    ExpressionPtr parse_filter(ExpressionPtr input);
    ExpressionPtr parse_test(ExpressionPtr input);
    void parse_arguments(Expression& into);

    [[nodiscard]] Expression make(ExpressionKind kind, std::string name = {}) const;
    ExpressionPtr finish(Expression expression) const;
    static void add(Expression& into, ExpressionPtr child);
    ExpressionPtr binary(ExpressionKind kind, std::string name, ExpressionPtr left,
                         ExpressionPtr right) const;

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    int loops_ = 0;  // that are open here: break and continue need one
};

}  // namespace troupe::model::jinja
