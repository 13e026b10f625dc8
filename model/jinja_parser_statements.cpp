#include <fmt/format.h>

#include <algorithm>

#include "model/jinja_parser.hpp"
#include "model/jinja_value.hpp"

namespace troupe::model::jinja {

void Parser::fail(const std::string& what) const {
    throw TemplateError(fmt::format("line {}: {}", token().line, what));
}

const Token& Parser::token_after(std::size_t count) const {
    return tokens_[std::min(at_ + count, tokens_.size() - 1)];
}

Token Parser::take() {
    Token taken = token();
    if (taken.kind != TokenKind::end) ++at_;
    return taken;
}

bool Parser::at_op(std::string_view op) const {
    return token().kind == TokenKind::op && token().text == op;
}
bool Parser::at_name(std::string_view name) const {
    return token().kind == TokenKind::name && token().text == name;
}
bool Parser::take_op(std::string_view op) {
    if (!at_op(op)) return false;
    ++at_;
    return true;
}
bool Parser::take_name(std::string_view name) {
    if (!at_name(name)) return false;
    ++at_;
    return true;
}
void Parser::expect_op(std::string_view op) {
    if (!take_op(op)) fail(fmt::format("'{}' was expected", op));
}
void Parser::expect_name(std::string_view name) {
    if (!take_name(name)) fail(fmt::format("'{}' was expected", name));
}
void Parser::expect(TokenKind kind, std::string_view what) {
    if (token().kind != kind) fail(fmt::format("{} was expected", what));
    take();
}
std::string Parser::expect_identifier() {
    if (token().kind != TokenKind::name) fail("a name was expected");
    return take().text;
}
void Parser::end_tag() {
    expect(TokenKind::block_end, "the end of the tag");
}

Block Parser::parse_template() {
    Block body = parse_body({});
    if (token().kind != TokenKind::end) fail(fmt::format("unexpected tag '{}'", token().text));
    return body;
}

Block Parser::parse_body(Names ends) {
    const Nesting nesting(*this);
    Block body;
    while (token().kind != TokenKind::end) {
        const int line = token().line;
        if (token().kind == TokenKind::text) {
            body.push_back({line, TextStatement{Text(take().text, Origin::from_template)}});
        } else if (token().kind == TokenKind::print_begin) {
            take();
            body.push_back({line, PrintStatement{parse_expression_or_tuple()}});
            expect(TokenKind::print_end, "the end of the print statement");
        } else {
            expect(TokenKind::block_begin, "a tag");
            const bool ended = std::any_of(ends.begin(), ends.end(),
                                           [&](std::string_view end) { return at_name(end); });
            if (ended) return body;
            parse_block_tag(body);
        }
    }
    if (ends.size() > 0) fail(fmt::format("'{}' is missing", *(ends.end() - 1)));
    return body;
}

void Parser::parse_block_tag(Block& into) {
    const int line = token().line;
    const std::string name = expect_identifier();
    const auto put = [&](Statement statement) {
        statement.line = line;
        into.push_back(std::move(statement));
    };
    if (name == "if") return put(parse_if());
    if (name == "for") return put(parse_for());
    if (name == "set") return put(parse_set());
    if (name == "macro") return put(parse_macro());
    if (name == "call") return put(parse_call());
    if (name == "filter") return put(parse_filter_block());
    if (name == "with") return put(parse_with());
    if (name == "generation") return parse_generation(into);
    if (name == "break" || name == "continue") {
        if (loops_ == 0) fail(fmt::format("'{}' outside of a loop", name));
        end_tag();
        if (name == "break") return put({line, BreakStatement{}});
        return put({line, ContinueStatement{}});
    }
    fail(fmt::format("the tag '{}' is not known", name));
}

Statement Parser::parse_if() {
    IfStatement made;
    ExpressionPtr condition = parse_expression_or_tuple();
    while (true) {
        end_tag();
        const bool last = condition == nullptr;
        Block body = last ? parse_body({"endif"}) : parse_body({"elif", "else", "endif"});
        made.branches.push_back({std::move(condition), std::move(body)});
        if (take_name("endif")) break;
        condition = take_name("elif") ? parse_expression_or_tuple() : nullptr;
        if (condition == nullptr) expect_name("else");
    }
    end_tag();
    return {0, std::move(made)};
}

std::vector<std::string> Parser::parse_targets(bool& unpacks) {
    const bool bracket = take_op("(");
    std::vector<std::string> targets = {expect_identifier()};
    unpacks = bracket && at_op(",");
    while (take_op(",")) {
        unpacks = true;
        if (token().kind != TokenKind::name || at_name("in")) break;
        targets.push_back(expect_identifier());
    }
    if (bracket) expect_op(")");
    return targets;
}

Statement Parser::parse_for() {
    ForStatement made;
    made.targets = parse_targets(made.unpacks);
    expect_name("in");
    // Not parse_expression(): an "if" here filters the loop.
    made.items = parse_or();
    if (at_op(",")) {
        Expression tuple = make(ExpressionKind::tuple);
        add(tuple, std::move(made.items));
        while (take_op(","))
            add(tuple, parse_or());
        made.items = finish(std::move(tuple));
    }
    if (take_name("if")) made.filter = parse_expression();
    made.recursive = take_name("recursive");
    end_tag();
    ++loops_;
    made.body = parse_body({"else", "endfor"});
    --loops_;
    if (take_name("else")) {
        end_tag();
        made.otherwise = parse_body({"endfor"});
    }
    expect_name("endfor");
    end_tag();
    return {0, std::move(made)};
}

Statement Parser::parse_set() {
    SetStatement made;
    made.targets = parse_targets(made.unpacks);
    if (take_op(".")) made.attribute = expect_identifier();
    if (take_op("=")) {
        made.value = parse_expression_or_tuple();
        end_tag();
        return {0, std::move(made)};
    }
    if (made.unpacks) fail("'=' was expected");
    if (at_op("|")) {
        take();
        made.filter = parse_filters_and_tests(parse_filter(nullptr));
    }
    end_tag();
    made.body = parse_body({"endset"});
    expect_name("endset");
    end_tag();
    return {0, std::move(made)};
}

std::vector<MacroStatement::Parameter> Parser::parse_parameters() {
    std::vector<MacroStatement::Parameter> parameters;
    expect_op("(");
    while (!at_op(")")) {
        MacroStatement::Parameter parameter{expect_identifier(), nullptr};
        if (take_op("=")) parameter.fallback = parse_expression();
        parameters.push_back(std::move(parameter));
        if (!take_op(",")) break;
    }
    expect_op(")");
    return parameters;
}

Statement Parser::parse_macro() {
    MacroStatement made;
    made.name = expect_identifier();
    made.parameters = parse_parameters();
    end_tag();
    const int loops = std::exchange(loops_, 0);
    made.body = parse_body({"endmacro"});
    loops_ = loops;
    expect_name("endmacro");
    if (token().kind == TokenKind::name) take();  // "endmacro name" is allowed
    end_tag();
    return {0, std::move(made)};
}

Statement Parser::parse_call() {
    CallStatement made;
    made.caller.name = "caller";
    if (at_op("(")) made.caller.parameters = parse_parameters();
    made.call = parse_expression();
    if (made.call->kind != ExpressionKind::call) fail("a call was expected");
    end_tag();
    const int loops = std::exchange(loops_, 0);
    made.caller.body = parse_body({"endcall"});
    loops_ = loops;
    expect_name("endcall");
    end_tag();
    return {0, std::move(made)};
}

Statement Parser::parse_filter_block() {
    FilterStatement made;
    made.filter = parse_filters_and_tests(parse_filter(nullptr));
    end_tag();
    made.body = parse_body({"endfilter"});
    expect_name("endfilter");
    end_tag();
    return {0, std::move(made)};
}

Statement Parser::parse_with() {
    WithStatement made;
    while (token().kind == TokenKind::name) {
        std::string name = expect_identifier();
        expect_op("=");
        made.variables.emplace_back(std::move(name), parse_expression());
        if (!take_op(",")) break;
    }
    end_tag();
    made.body = parse_body({"endwith"});
    expect_name("endwith");
    end_tag();
    return {0, std::move(made)};
}

// Marks the assistant's words for training; for a prompt it is its body.
void Parser::parse_generation(Block& into) {
    end_tag();
    WithStatement made;
    const int line = token().line;
    made.body = parse_body({"endgeneration"});
    expect_name("endgeneration");
    end_tag();
    into.push_back({line, std::move(made)});
}

}  // namespace troupe::model::jinja
