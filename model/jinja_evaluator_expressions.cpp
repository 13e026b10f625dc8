#include <fmt/format.h>

#include <algorithm>

#include "model/jinja_evaluator.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model::jinja {

namespace {

Value call_global(Evaluator& evaluator, std::string_view name, GlobalFunction function) {
    return evaluator.heap().make(
        Callable{std::string(name),
                 [function](Evaluator& e, const Arguments& a) { return function(e, a); }});
}

Value negated(const Value& value) {
    if (const auto* real = get<double>(value)) return -*real;
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, integer_of(value), &result)) {
        throw TemplateError("a number is too large");
    }
    return result;
}

Value plus(const Value& value) {
    if (is<double>(value)) return value;
    return integer_of(value);
}

Value loop_attribute(Evaluator& evaluator, const Loop& loop, std::string_view name) {
    const auto count = static_cast<std::int64_t>(loop.items->size());
    const auto index0 = static_cast<std::int64_t>(loop.index0);
    const auto depth0 = static_cast<std::int64_t>(loop.depth0);
    if (name == "index") return index0 + 1;
    if (name == "index0") return index0;
    if (name == "revindex") return count - index0;
    if (name == "revindex0") return count - index0 - 1;
    if (name == "first") return index0 == 0;
    if (name == "last") return index0 == count - 1;
    if (name == "length") return count;
    if (name == "depth") return depth0 + 1;
    if (name == "depth0") return depth0;
    if (name == "previtem") return index0 > 0 ? (*loop.items)[loop.index0 - 1] : Undefined{};
    if (name == "nextitem") {
        return index0 + 1 < count ? (*loop.items)[loop.index0 + 1] : Undefined{};
    }
    if (name == "cycle") {
        return evaluator.heap().make(
            Callable{"cycle", [&loop](Evaluator&, const Arguments& arguments) -> Value {
                         if (arguments.positional.empty())
                             throw TemplateError("nothing to cycle through");
                         return arguments.positional[loop.index0 % arguments.positional.size()];
                     }});
    }
    if (name == "changed") {
        return evaluator.heap().make(Callable{
            "changed", [&loop](Evaluator&, const Arguments& arguments) -> Value {
                std::vector<Value>& last = *loop.changed;
                const bool same = std::equal(last.begin(), last.end(), arguments.positional.begin(),
                                             arguments.positional.end(), equal);
                const bool first = loop.index0 == 0;
                last = arguments.positional;
                return first || !same;
            }});
    }
    return Undefined{};
}

// From key, value, key, value, ...
Value dict_of(Heap& heap, const std::vector<Value>& values) {
    Dict dict;
    for (std::size_t i = 0; i < values.size(); i += 2) {
        check_hashable(values[i]);
        dict.set(values[i], values[i + 1]);
    }
    return heap.dict(std::move(dict));
}

// Position `index` counted from the end where negative; nullopt outside.
std::optional<std::size_t> position(std::int64_t index, std::size_t size) {
    if (index < 0) index += static_cast<std::int64_t>(size);
    if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
    return static_cast<std::size_t>(index);
}

// The positions that [begin:end:step] of `size` items selects, by Python's rules.
std::vector<std::size_t> slice_positions(const Value& begin, const Value& end, const Value& step,
                                         std::size_t size) {
    const auto count = static_cast<std::int64_t>(size);
    const auto given = [](const Value& value) { return !is<Undefined>(value) && !is<None>(value); };
    const std::int64_t by = given(step) ? integer_of(step) : 1;
    if (by == 0) throw TemplateError("the step of a slice may not be 0");
    const std::int64_t low = by > 0 ? 0 : -1;
    const std::int64_t high = by > 0 ? count : count - 1;
    const auto bound = [&](const Value& value, std::int64_t fallback) {
        if (!given(value)) return fallback;
        std::int64_t at = std::clamp(integer_of(value), -count - 1, count + 1);
        if (at < 0) at += count;
        return std::clamp(at, low, high);
    };
    const std::int64_t from = bound(begin, by > 0 ? low : high);
    const std::int64_t to = bound(end, by > 0 ? high : low);
    std::vector<std::size_t> positions;
    const std::int64_t stride = std::clamp(by, -count - 1, count + 1);
    for (std::int64_t at = from; stride > 0 ? at < to : at > to; at += stride) {
        positions.push_back(static_cast<std::size_t>(at));
    }
    return positions;
}

}  // namespace

std::vector<Value> Evaluator::iterate(const Value& value) {
    std::vector<Value> items;
    if (const List* list = as_list(value)) {
        items = list->items;
    } else if (const Dict* dict = as_dict(value)) {
        for (const auto& item : dict->items)
            items.push_back(item.first);
    } else if (const Text* text = as_text(value)) {
        const std::vector<std::size_t> offsets = character_offsets(text->bytes());
        for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
            items.push_back(heap_.text(text->part(offsets[i], offsets[i + 1] - offsets[i])));
        }
    } else if (!is<Undefined>(value)) {
        throw TemplateError(fmt::format("'{}' cannot be iterated", type_name(value)));
    }
    spend(items.size());
    return items;
}

Value Evaluator::attribute(const Value& object, std::string_view name) {
    if (is<Undefined>(object)) {
        throw TemplateError(fmt::format("'{}' of an undefined value", name));
    }
    if (const MethodFunction method = find_method(object, name)) {
        return heap_.make(Callable{
            std::string(name), [method, object](Evaluator& evaluator, const Arguments& arguments) {
                return method(evaluator, object, arguments);
            }});
    }
    if (const Dict* dict = as_dict(object)) {
        spend(dict->items.size() / 16);
        const Value* found = dict->find(name);
        return found ? *found : Undefined{};
    }
    if (const auto* name_space = get<Namespace*>(object)) {
        for (const auto& [known, value] : (*name_space)->attributes) {
            if (known == name) return value;
        }
    }
    if (const auto* loop = get<const Loop*>(object)) return loop_attribute(*this, **loop, name);
    const auto* callable = get<const Callable*>(object);
    if (callable && name == "name") return heap_.text((*callable)->name);
    return Undefined{};
}

Value Evaluator::item(const Value& object, const Value& key) {
    if (is<Undefined>(object)) throw TemplateError("an item of an undefined value");
    if (const Dict* dict = as_dict(object)) {
        spend(dict->items.size() / 16);
        if (const Value* found = dict->find(key)) return *found;
    } else if (const List* list = as_list(object); list && is_integer(key)) {
        const auto at = position(integer_of(key), list->items.size());
        return at ? list->items[*at] : Undefined{};
    } else if (const Text* text = as_text(object); text && is_integer(key)) {
        const std::vector<std::size_t> offsets = character_offsets(text->bytes());
        spend(offsets.size() / 16);
        const auto at = position(integer_of(key), offsets.size() - 1);
        if (!at) return Undefined{};
        return heap_.text(text->part(offsets[*at], offsets[*at + 1] - offsets[*at]));
    }
    const Text* name = as_text(key);
    return name ? attribute(object, name->bytes()) : Undefined{};
}

Value Evaluator::call(const Value& callee, const Arguments& arguments) {
    const Depth depth(*this);
    spend(1);
    const int line = line_;
    Value result;
    if (const auto* callable = get<const Callable*>(callee)) {
        result = (*callable)->call(*this, arguments);
    } else if (const auto* loop = get<const Loop*>(callee); loop && (*loop)->recurse) {
        result = (*loop)->recurse->call(*this, arguments);
    } else {
        throw TemplateError(fmt::format("'{}' is not callable", type_name(callee)));
    }
    line_ = line;
    return result;
}

Value Evaluator::evaluate(const Expression& expression) {
    const Depth depth(*this);
    spend(1);
    line_ = expression.line;
    const auto child = [&](std::size_t i) { return evaluate(*expression.children[i]); };
    const auto children = [&] {
        std::vector<Value> values;
        for (const ExpressionPtr& one : expression.children)
            values.push_back(evaluate(*one));
        return values;
    };
    switch (expression.kind) {
        case ExpressionKind::literal:
            return evaluate_literal(expression);
        case ExpressionKind::name:
            return evaluate_name(expression.name);
        case ExpressionKind::list:
            return heap_.list(children());
        case ExpressionKind::tuple:
            return heap_.list(children(), true);
        case ExpressionKind::dict:
            return dict_of(heap_, children());
        case ExpressionKind::attribute:
            return attribute(child(0), expression.name);
        case ExpressionKind::subscript: {
            const Value object = child(0);
            return item(object, child(1));
        }
        case ExpressionKind::slice:
            return evaluate_slice(expression);
        case ExpressionKind::call:
            return evaluate_call(expression);
        case ExpressionKind::filter:
            return evaluate_filter(expression);
        case ExpressionKind::test:
            return evaluate_test(expression);
        case ExpressionKind::logical_not:
            return !truthy(child(0));
        case ExpressionKind::negate:
            return negated(child(0));
        case ExpressionKind::plus:
            return plus(child(0));
        case ExpressionKind::arithmetic: {
            const Value left = child(0);
            return arithmetic(heap_, expression.name, left, child(1));
        }
        case ExpressionKind::concat:
            return evaluate_concat(expression);
        case ExpressionKind::compare:
            return evaluate_compare(expression);
        case ExpressionKind::logical_and:
        case ExpressionKind::logical_or: {
            const Value left = child(0);
            const bool decided = truthy(left) == (expression.kind == ExpressionKind::logical_or);
            return decided ? left : child(1);
        }
        case ExpressionKind::conditional:
            if (truthy(child(0))) return child(1);
            return expression.children[2] ? child(2) : Undefined{};
        case ExpressionKind::spread:
            break;  // among arguments only
    }
    TROUPE_ASSERT(false, "an expression of no known kind");
}

Value Evaluator::evaluate_literal(const Expression& expression) {
    const Literal& literal = expression.literal;
    if (const auto* text = std::get_if<Text>(&literal)) return text;
    if (const auto* boolean = std::get_if<bool>(&literal)) return *boolean;
    if (const auto* integer = std::get_if<std::int64_t>(&literal)) return *integer;
    if (const auto* real = std::get_if<double>(&literal)) return *real;
    return None{};
}

Value Evaluator::evaluate_name(std::string_view name) {
    if (const Value* value = frame_->find(name)) return *value;
    if (const Value* value = context_.find(name)) return *value;
    if (const GlobalFunction function = find_global(name)) {
        return call_global(*this, name, function);
    }
    return Undefined{};
}

Value Evaluator::evaluate_slice(const Expression& expression) {
    const Value object = evaluate(*expression.children[0]);
    const auto part = [&](std::size_t i) -> Value {
        return expression.children[i] ? evaluate(*expression.children[i]) : Undefined{};
    };
    const Value begin = part(1);
    const Value end = part(2);
    const Value step = part(3);
    if (const List* list = as_list(object)) {
        std::vector<Value> items;
        for (const std::size_t at : slice_positions(begin, end, step, list->items.size())) {
            items.push_back(list->items[at]);
        }
        spend(items.size());
        return heap_.list(std::move(items), list->is_tuple);
    }
    const Text* text = as_text(object);
    if (!text) throw TemplateError(fmt::format("'{}' cannot be sliced", type_name(object)));
    const std::vector<std::size_t> offsets = character_offsets(text->bytes());
    Text made;
    for (const std::size_t at : slice_positions(begin, end, step, offsets.size() - 1)) {
        made.append_part(*text, offsets[at], offsets[at + 1] - offsets[at]);
    }
    spend(offsets.size() / 16);
    return heap_.text(std::move(made));
}

Arguments Evaluator::evaluate_arguments(const Expression& expression) {
    Arguments arguments;
    for (std::size_t i = 1; i < expression.children.size(); ++i) {
        const Expression& child = *expression.children[i];
        if (child.kind == ExpressionKind::spread) {
            for (const Value& item : iterate(evaluate(*child.children[0]))) {
                arguments.positional.push_back(item);
            }
        } else {
            arguments.positional.push_back(evaluate(child));
        }
    }
    for (const auto& [name, expression_of_value] : expression.named) {
        const Value value = evaluate(*expression_of_value);
        if (!name.empty()) {
            arguments.named.emplace_back(name, value);
            continue;
        }
        const Dict* dict = as_dict(value);
        if (!dict) throw TemplateError("'**' before something that is no dict");
        for (const auto& [key, item] : dict->items) {
            arguments.named.emplace_back(text_of(key).bytes(), item);
        }
    }
    return arguments;
}

Value Evaluator::evaluate_call(const Expression& expression, const Callable* caller) {
    const Expression& callee = *expression.children[0];
    if (callee.kind == ExpressionKind::attribute) {
        // The common "text.strip()", without a callable in between.
        const Value self = evaluate(*callee.children[0]);
        if (const MethodFunction method = find_method(self, callee.name)) {
            const Arguments arguments = evaluate_arguments(expression);
            line_ = expression.line;
            return method(*this, self, arguments);
        }
        const Value value = attribute(self, callee.name);
        Arguments arguments = evaluate_arguments(expression);
        if (caller) arguments.named.emplace_back("caller", caller);
        line_ = expression.line;
        if (is<Undefined>(value)) {
            throw TemplateError(
                fmt::format("'{}' has no method '{}'", type_name(self), callee.name));
        }
        return call(value, arguments);
    }
    const Value value = evaluate(callee);
    Arguments arguments = evaluate_arguments(expression);
    if (caller) arguments.named.emplace_back("caller", caller);
    line_ = expression.line;
    if (is<Undefined>(value)) {
        throw TemplateError(fmt::format("'{}' is undefined and cannot be called", callee.name));
    }
    return call(value, arguments);
}

Value Evaluator::evaluate_filter(const Expression& expression) {
    const ExpressionPtr& input = expression.children[0];
    TROUPE_ASSERT(input || block_text_, "a filter without input outside of a block");
    const Value value = input ? evaluate(*input) : *block_text_;
    const Arguments arguments = evaluate_arguments(expression);
    line_ = expression.line;
    return apply_filter(*this, expression.name, value, arguments);
}

Value Evaluator::evaluate_filter(const Expression& expression, const Value& block_text) {
    const Value* const outer = std::exchange(block_text_, &block_text);
    const Value result = evaluate(expression);
    block_text_ = outer;
    return result;
}

bool Evaluator::evaluate_test(const Expression& expression) {
    const Value input = evaluate(*expression.children[0]);
    const Arguments arguments = evaluate_arguments(expression);
    line_ = expression.line;
    return apply_test(*this, expression.name, input, arguments);
}

bool Evaluator::evaluate_compare(const Expression& expression) {
    Value left = evaluate(*expression.children[0]);
    for (std::size_t i = 0; i < expression.operators.size(); ++i) {
        const Value right = evaluate(*expression.children[i + 1]);
        if (!compare(*this, expression.operators[i], left, right)) return false;
        left = right;
    }
    return true;
}

Value Evaluator::evaluate_concat(const Expression& expression) {
    Text made;
    for (const ExpressionPtr& child : expression.children) {
        made.append(to_text(evaluate(*child)));
    }
    return heap_.text(std::move(made));
}

}  // namespace troupe::model::jinja
