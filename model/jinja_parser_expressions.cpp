#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/jinja_parser.hpp"
#include "model/jinja_value.hpp"

namespace troupe::model::jinja {

Expression Parser::make(ExpressionKind kind, std::string name) const {
    Expression made;
    made.kind = kind;
    made.line = token().line;
    made.name = std::move(name);
    return made;
}

void Parser::add(Expression& into, ExpressionPtr child) {
    if (child) into.depth = std::max(into.depth, child->depth + 1);
    into.children.push_back(std::move(child));
}

ExpressionPtr Parser::finish(Expression expression) const {
    for (const auto& [name, value] : expression.named) {
        expression.depth = std::max(expression.depth, value->depth + 1);
    }
    if (expression.depth > depth_max) fail("an expression is nested too deeply");
    return std::make_unique<const Expression>(std::move(expression));
}

ExpressionPtr Parser::binary(ExpressionKind kind, std::string name, ExpressionPtr left,
                             ExpressionPtr right) const {
    Expression made = make(kind, std::move(name));
    add(made, std::move(left));
    add(made, std::move(right));
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_expression() {
    const Nesting nesting(*this);
    ExpressionPtr value = parse_or();
    while (take_name("if")) {
        Expression made = make(ExpressionKind::conditional);
        add(made, parse_or());
        add(made, std::move(value));
        add(made, take_name("else") ? parse_expression() : nullptr);
        value = finish(std::move(made));
    }
    return value;
}

ExpressionPtr Parser::parse_expression_or_tuple() {
    ExpressionPtr first = parse_expression();
    if (!at_op(",")) return first;
    Expression tuple = make(ExpressionKind::tuple);
    add(tuple, std::move(first));
    while (take_op(",")) {
        const bool ends = token().kind == TokenKind::block_end ||
                          token().kind == TokenKind::print_end || at_op(")");
        if (ends) break;
        add(tuple, parse_expression());
    }
    return finish(std::move(tuple));
}

ExpressionPtr Parser::parse_or() {
    ExpressionPtr left = parse_and();
    while (take_name("or")) {
        left = binary(ExpressionKind::logical_or, "or", std::move(left), parse_and());
    }
    return left;
}

ExpressionPtr Parser::parse_and() {
    ExpressionPtr left = parse_not();
    while (take_name("and")) {
        left = binary(ExpressionKind::logical_and, "and", std::move(left), parse_not());
    }
    return left;
}

ExpressionPtr Parser::parse_not() {
    if (!take_name("not")) return parse_compare();
    const Nesting nesting(*this);
    Expression made = make(ExpressionKind::logical_not);
    add(made, parse_not());
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_compare() {
    constexpr std::array<std::string_view, 6> operators = {"==", "!=", "<", "<=", ">", ">="};
    ExpressionPtr first = parse_sum();
    Expression made = make(ExpressionKind::compare);
    while (true) {
        const bool symbol =
            token().kind == TokenKind::op &&
            std::find(operators.begin(), operators.end(), token().text) != operators.end();
        if (symbol) {
            made.operators.push_back(take().text);
        } else if (take_name("in")) {
            made.operators.emplace_back("in");
        } else if (at_name("not") && token_after(1).kind == TokenKind::name &&
                   token_after(1).text == "in") {
            take();
            take();
            made.operators.emplace_back("not in");
        } else {
            break;
        }
        if (made.children.empty()) add(made, std::move(first));
        add(made, parse_sum());
    }
    return made.children.empty() ? std::move(first) : finish(std::move(made));
}

ExpressionPtr Parser::parse_sum() {
    ExpressionPtr left = parse_concat();
    while (at_op("+") || at_op("-")) {
        std::string op = take().text;
        left = binary(ExpressionKind::arithmetic, std::move(op), std::move(left), parse_concat());
    }
    return left;
}

ExpressionPtr Parser::parse_concat() {
    ExpressionPtr first = parse_product();
    if (!at_op("~")) return first;
    Expression made = make(ExpressionKind::concat);
    add(made, std::move(first));
    while (take_op("~"))
        add(made, parse_product());
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_product() {
    ExpressionPtr left = parse_power();
    while (at_op("*") || at_op("/") || at_op("//") || at_op("%")) {
        std::string op = take().text;
        left = binary(ExpressionKind::arithmetic, std::move(op), std::move(left), parse_power());
    }
    return left;
}

ExpressionPtr Parser::parse_power() {
    ExpressionPtr left = parse_unary(true);
    while (take_op("**")) {
        left = binary(ExpressionKind::arithmetic, "**", std::move(left), parse_unary(true));
    }
    return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
    const Nesting nesting(*this);
    ExpressionPtr value;
    if (at_op("-") || at_op("+")) {
        const bool minus = take().text == "-";
        Expression made = make(minus ? ExpressionKind::negate : ExpressionKind::plus);
        add(made, parse_unary(false));
        value = finish(std::move(made));
    } else {
        value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::parse_primary() {
    if (token().kind == TokenKind::name) return parse_name_or_literal();
    if (token().kind == TokenKind::string) {
        Expression made = make(ExpressionKind::literal);
        std::string text;
        while (token().kind == TokenKind::string)
            text += take().text;
        made.literal = Text(text, Origin::from_template);
        return finish(std::move(made));
    }
    if (token().kind == TokenKind::integer || token().kind == TokenKind::real) {
        Expression made = make(ExpressionKind::literal);
        const Token number = take();
        if (number.kind == TokenKind::integer) {
            made.literal = number.integer;
        } else {
            made.literal = number.real;
        }
        return finish(std::move(made));
    }
    if (at_op("(")) return parse_parenthesised();
    if (at_op("[")) return parse_list();
    if (at_op("{")) return parse_dict();
    fail("an expression was expected");
}

ExpressionPtr Parser::parse_name_or_literal() {
    const std::string name = token().text;
    Expression made = make(ExpressionKind::literal);
    if (name == "true" || name == "True") {
        made.literal = true;
    } else if (name == "false" || name == "False") {
        made.literal = false;
    } else if (name != "none" && name != "None") {
        made.kind = ExpressionKind::name;
        made.name = name;
    }
    take();
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_parenthesised() {
    expect_op("(");
    if (take_op(")")) return finish(make(ExpressionKind::tuple));
    ExpressionPtr inner = parse_expression_or_tuple();
    expect_op(")");
    return inner;
}

ExpressionPtr Parser::parse_list() {
    Expression made = make(ExpressionKind::list);
    expect_op("[");
    while (!at_op("]")) {
        add(made, parse_expression());
        if (!take_op(",")) break;
    }
    expect_op("]");
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_dict() {
    Expression made = make(ExpressionKind::dict);
    expect_op("{");
    while (!at_op("}")) {
        add(made, parse_expression());
        expect_op(":");
        add(made, parse_expression());
        if (!take_op(",")) break;
    }
    expect_op("}");
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr expression) {
    while (true) {
        if (take_op(".")) {
            if (token().kind == TokenKind::integer) {
                Expression key = make(ExpressionKind::literal);
                key.literal = take().integer;
                expression = binary(ExpressionKind::subscript, {}, std::move(expression),
                                    finish(std::move(key)));
                continue;
            }
            Expression made = make(ExpressionKind::attribute, expect_identifier());
            add(made, std::move(expression));
            expression = finish(std::move(made));
        } else if (at_op("[")) {
            expression = parse_subscript(std::move(expression));
        } else if (at_op("(")) {
            Expression made = make(ExpressionKind::call);
            add(made, std::move(expression));
            parse_arguments(made);
            expression = finish(std::move(made));
        } else {
            return expression;
        }
    }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
    Expression made = make(ExpressionKind::subscript);
    add(made, std::move(object));
    expect_op("[");
    const auto at_part_end = [&] { return at_op(":") || at_op("]"); };
    if (at_op("]")) {
        add(made, finish(make(ExpressionKind::tuple)));  // "a[]" is the item of no key
    } else if (!at_op(":")) {
        add(made, parse_expression_or_tuple());
    }
    if (at_op(":")) {
        made.kind = ExpressionKind::slice;
        if (made.children.size() == 1) add(made, nullptr);
        while (made.children.size() < 4 && take_op(":")) {
            add(made, at_part_end() ? nullptr : parse_expression());
        }
        while (made.children.size() < 4)
            add(made, nullptr);
    }
    expect_op("]");
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr expression) {
    while (true) {
        if (take_op("|")) {
            expression = parse_filter(std::move(expression));
        } else if (take_name("is")) {
            expression = parse_test(std::move(expression));
        } else if (at_op("(")) {
            expression = parse_postfix(std::move(expression));
        } else {
            return expression;
        }
    }
}

ExpressionPtr Parser::parse_filter(ExpressionPtr input) {
    Expression made = make(ExpressionKind::filter, expect_identifier());
    add(made, std::move(input));
    if (at_op("(")) parse_arguments(made);
    return finish(std::move(made));
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
    const bool negated = take_name("not");
    Expression made = make(ExpressionKind::test, expect_identifier());
    add(made, std::move(input));
    if (at_op("(")) {
        parse_arguments(made);
    } else {
        // One argument may stand without brackets: "is divisibleby 3".
        const Token& next = token();
        const bool operand = next.kind == TokenKind::string || next.kind == TokenKind::integer ||
                             next.kind == TokenKind::real || at_op("[") || at_op("{");
        const bool word = next.kind == TokenKind::name && !at_name("else") && !at_name("or") &&
                          !at_name("and") && !at_name("if") && !at_name("is") && !at_name("in") &&
                          !at_name("not");
        if (operand || word) add(made, parse_postfix(parse_primary()));
    }
    ExpressionPtr test = finish(std::move(made));
    if (!negated) return test;
    Expression inverse = make(ExpressionKind::logical_not);
    add(inverse, std::move(test));
    return finish(std::move(inverse));
}

void Parser::parse_arguments(Expression& into) {
    expect_op("(");
    while (!at_op(")")) {
        const bool named = token().kind == TokenKind::name &&
                           token_after(1).kind == TokenKind::op && token_after(1).text == "=";
        if (take_op("**")) {
            into.named.emplace_back(std::string(), parse_expression());
        } else if (take_op("*")) {
            Expression spread = make(ExpressionKind::spread);
            add(spread, parse_expression());
            add(into, finish(std::move(spread)));
        } else if (named) {
            std::string name = take().text;
            take();
            into.named.emplace_back(std::move(name), parse_expression());
        } else {
            if (!into.named.empty()) fail("an argument without a name follows one with a name");
            add(into, parse_expression());
        }
        if (!take_op(",")) break;
    }
    expect_op(")");
}

}  // namespace troupe::model::jinja
