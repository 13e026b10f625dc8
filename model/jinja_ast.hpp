// A parsed template. Immutable after parsing, so one tree serves any number of renderings at once.
// Trees are at most `depth_max` deep: walking and destroying them by recursion is safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja_text.hpp"

namespace troupe::model::jinja {

inline constexpr int depth_max = 200;

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// What `name` and `children` hold for each kind; "?" is a child that may be null.
enum class ExpressionKind {
    literal,      // `literal`
    name,         // name
    list,         // children: items
    tuple,        // children: items
    dict,         // children: key, value, key, value, ...
    attribute,    // name; children: object
    subscript,    // children: object, key
    slice,        // children: object, begin?, end?, step?
    call,         // children: what is called, positional arguments; named: the others
    filter,       // name; children: input? (null: the text of a filter block), arguments; named
    test,         // name; children: input, arguments; named
    logical_not,  // children: operand
    negate,       // children: operand
    plus,         // children: operand
    arithmetic,   // name: + - * / // % **; children: left, right
    concat,       // children: operands of ~
    compare,      // children: operands; operators: one between each two
    logical_and,  // children: left, right
    logical_or,   // children: left, right
    conditional,  // children: condition, then, else?
    spread,       // "*items" among arguments; children: items
};

using Literal = std::variant<std::monostate, bool, std::int64_t, double, Text>;

struct Expression {
    ExpressionKind kind = ExpressionKind::literal;
    int line = 0;
    int depth = 1;
    std::string name;
    std::vector<ExpressionPtr> children;
    std::vector<std::pair<std::string, ExpressionPtr>> named;  // no name: "**dict"
    std::vector<std::string> operators;                        // == != < <= > >= in, "not in"
    Literal literal;                                           // monostate: none
};

struct Statement;
using Block = std::vector<Statement>;

struct TextStatement {
    Text text;
};

struct PrintStatement {
    ExpressionPtr value;
};

struct IfStatement {
    struct Branch {
        ExpressionPtr condition;  // null: else
        Block body;
    };
    std::vector<Branch> branches;
};

struct ForStatement {
    std::vector<std::string> targets;
    bool unpacks = false;  // the targets are a tuple, even if of one
    ExpressionPtr items;
    ExpressionPtr filter;  // null: all
    bool recursive = false;
    Block body;
    Block otherwise;
};

// Sets names, or one attribute of a namespace.
struct SetStatement {
    std::vector<std::string> targets;
    bool unpacks = false;
    std::string attribute;  // of targets[0]; empty: none
    ExpressionPtr value;    // null: the text of `body`, through `filter` if there is one
    ExpressionPtr filter;
    Block body;
};

struct MacroStatement {
    struct Parameter {
        std::string name;
        ExpressionPtr fallback;  // null: undefined where the caller gives none
    };
    std::string name;
    std::vector<Parameter> parameters;
    Block body;
};

struct CallStatement {
    ExpressionPtr call;
    MacroStatement caller;
};

struct FilterStatement {
    ExpressionPtr filter;
    Block body;
};

struct WithStatement {
    std::vector<std::pair<std::string, ExpressionPtr>> variables;
    Block body;
};

struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
    int line = 0;
    std::variant<TextStatement, PrintStatement, IfStatement, ForStatement, SetStatement,
                 MacroStatement, CallStatement, FilterStatement, WithStatement, BreakStatement,
                 ContinueStatement>
        what;
};

}  // namespace troupe::model::jinja
