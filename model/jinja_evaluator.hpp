// Runs a parsed template once. Internal to the engine: filters, tests, methods and functions see it
// as the way to the heap and to each other. Errors are thrown as TemplateError.
#pragma once

#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja.hpp"

namespace troupe::model::jinja {

// Variables of one scope. Frames live as long as the rendering, because macros refer to them.
struct Frame {
    const Frame* parent = nullptr;
    std::vector<std::pair<std::string_view, Value>> variables;

    void set(std::string_view name, const Value& value);
    [[nodiscard]] const Value* find(std::string_view name) const;  // here or further out
};

class Evaluator {
 public:
    Evaluator(Heap& heap, const Dict& context, const RenderOptions& options);

    [[nodiscard]] Text run(const Block& body);

    // The line that is being worked on, for messages.
    [[nodiscard]] int line() const { return line_; }

    [[nodiscard]] Heap& heap() { return heap_; }
    [[nodiscard]] const RenderOptions& options() const { return options_; }

    // Spends steps, for work that grows with its input.
    void spend(std::size_t steps);

    // object.name and object[key]; undefined where there is none, an error on undefined.
    [[nodiscard]] Value attribute(const Value& object, std::string_view name);
    [[nodiscard]] Value item(const Value& object, const Value& key);

    [[nodiscard]] Value call(const Value& callee, const Arguments& arguments);

    // What a for loop visits: items of a list, keys of a dict, characters of a string.
    [[nodiscard]] std::vector<Value> iterate(const Value& value);

 private:
    enum class Flow { next, break_loop, continue_loop };
    class Scope;

    // Counts nested statements, expressions and calls: the machine's stack is bounded by it.
    class Depth {
     public:
        explicit Depth(Evaluator& evaluator) : evaluator_(evaluator) {
            if (++evaluator_.depth_ > evaluator_.options_.limits.depth) {
                throw TemplateError("it calls itself too deeply");
            }
        }
        ~Depth() { --evaluator_.depth_; }
        Depth(const Depth&) = delete;
        Depth& operator=(const Depth&) = delete;

     private:
        Evaluator& evaluator_;
    };

    // jinja_evaluator_statements.cpp
    Flow execute(const Block& body);
    Flow execute(const Statement& statement);
    Flow execute_if(const IfStatement& statement);
    void execute_for(const ForStatement& statement);
    void loop_over(const ForStatement& statement, const Value& items, std::size_t depth0);
    Flow execute_set(const SetStatement& statement);
    Flow execute_with(const WithStatement& statement);
    void assign(const std::vector<std::string>& targets, bool unpacks, const Value& value);
    // Appends what `body` writes to `text`.
    Flow capture(const Block& body, Text& text);
    void write(const Text& text);
    const Callable* make_macro(const MacroStatement& macro);
    Value call_macro(const MacroStatement& macro, const Frame* defined_in,
                     const Arguments& arguments);

    // jinja_evaluator_expressions.cpp
    Value evaluate(const Expression& expression);
    Value evaluate_literal(const Expression& expression);
    Value evaluate_name(std::string_view name);
    Value evaluate_slice(const Expression& expression);
    Value evaluate_call(const Expression& expression, const Callable* caller = nullptr);
    Value evaluate_filter(const Expression& expression);
    Value evaluate_filter(const Expression& expression, const Value& block_text);
    bool evaluate_compare(const Expression& expression);
    Value evaluate_concat(const Expression& expression);
    Arguments evaluate_arguments(const Expression& expression);
    bool evaluate_test(const Expression& expression);

    Heap& heap_;
    const Dict& context_;
    const RenderOptions& options_;
    std::deque<Frame> frames_;
    Frame* frame_ = nullptr;
    Text* out_ = nullptr;
    const Value* block_text_ = nullptr;  // what a filter without input filters
    std::size_t steps_ = 0;
    std::size_t written_bytes_ = 0;
    int depth_ = 0;
    int line_ = 0;
};

// The built-in things, each kind in a file of its own. A null pointer: there is none of that name.
// A row of the tables by which names find their functions.
template <typename Function>
struct Named {
    std::string_view name;
    Function function;
};

// Null where the table has no such name.
template <typename Function, std::size_t N>
[[nodiscard]] Function find_named(const Named<Function> (&table)[N], std::string_view name) {
    for (const Named<Function>& row : table) {
        if (row.name == name) return row.function;
    }
    return nullptr;
}

using FilterFunction = Value (*)(Evaluator&, const Value& input, const Arguments&);
using TestFunction = bool (*)(Evaluator&, const Value& input, const Arguments&);
using MethodFunction = Value (*)(Evaluator&, const Value& self, const Arguments&);
using GlobalFunction = Value (*)(Evaluator&, const Arguments&);

[[nodiscard]] FilterFunction find_filter(std::string_view name);
[[nodiscard]] FilterFunction find_sequence_filter(std::string_view name);
[[nodiscard]] TestFunction find_test(std::string_view name);
[[nodiscard]] MethodFunction find_method(const Value& self, std::string_view name);
[[nodiscard]] GlobalFunction find_global(std::string_view name);

// Throw for an unknown name.
[[nodiscard]] Value apply_filter(Evaluator& evaluator, std::string_view name, const Value& input,
                                 const Arguments& arguments);
[[nodiscard]] bool apply_test(Evaluator& evaluator, std::string_view name, const Value& input,
                              const Arguments& arguments);

// Binary operators by their spelling, and the ones of compare.
[[nodiscard]] Value arithmetic(Heap& heap, std::string_view op, const Value& a, const Value& b);
[[nodiscard]] bool compare(Evaluator& evaluator, std::string_view op, const Value& a,
                           const Value& b);
[[nodiscard]] bool contains(Evaluator& evaluator, const Value& container, const Value& item);

// Arguments by position or name. Null where it is not given.
[[nodiscard]] const Value* argument(const Arguments& arguments, std::size_t at,
                                    std::string_view name);
[[nodiscard]] std::int64_t integer_argument(const Arguments& arguments, std::size_t at,
                                            std::string_view name, std::int64_t fallback);
[[nodiscard]] bool bool_argument(const Arguments& arguments, std::size_t at, std::string_view name,
                                 bool fallback);
// Throws where there is none.
[[nodiscard]] const Value& required(const Arguments& arguments, std::size_t at,
                                    std::string_view name);
[[nodiscard]] const Text& text_of(const Value& value);  // throws unless it is a string
// Characters or items. Throws for what has no length.
[[nodiscard]] std::int64_t length_of(const Value& value);

}  // namespace troupe::model::jinja
