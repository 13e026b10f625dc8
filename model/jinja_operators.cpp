#include <fmt/format.h>

#include <cmath>

#include "model/jinja_evaluator.hpp"
#include "model/jinja_format.hpp"
#include "model/jinja_strings.hpp"

namespace troupe::model::jinja {

namespace {

constexpr std::size_t repeated_bytes_max = std::size_t{16} << 20;

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
    throw TemplateError(
        fmt::format("'{}' does not work on '{}' and '{}'", op, type_name(a), type_name(b)));
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
    std::int64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        const bool overflow = ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) ||
                              (exponent > 1 && __builtin_mul_overflow(base, base, &base));
        if (overflow) throw TemplateError("a number is too large");
    }
    return result;
}

Value integer_arithmetic(std::string_view op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflow = false;
    if (op == "+") {
        overflow = __builtin_add_overflow(a, b, &result);
    } else if (op == "-") {
        overflow = __builtin_sub_overflow(a, b, &result);
    } else if (op == "*") {
        overflow = __builtin_mul_overflow(a, b, &result);
    } else if (op == "**") {
        if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
        result = power(a, b);
    } else {
        if (b == 0) throw TemplateError("division by zero");
        if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
        if (b == -1) return op == "%" ? Value(std::int64_t{0}) : integer_arithmetic("-", 0, a);
        // Python rounds towards minus infinity.
        const bool lower = a % b != 0 && (a < 0) != (b < 0);
        result = op == "//" ? a / b - (lower ? 1 : 0) : a % b + (lower ? b : 0);
    }
    if (overflow) throw TemplateError("a number is too large");
    return result;
}

Value real_arithmetic(std::string_view op, double a, double b) {
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (op == "**") return std::pow(a, b);
    if (b == 0) throw TemplateError("division by zero");
    if (op == "/") return a / b;
    // As Python: the rest has the sign of the divisor, and the quotient follows from it.
    double rest = std::fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    if (op == "%") return rest == 0 ? std::copysign(0.0, b) : rest;
    const double quotient = (a - rest) / b;
    const double whole = std::floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value repeated(Heap& heap, const Value& sequence, std::int64_t times) {
    const std::size_t count = times < 0 ? 0 : static_cast<std::size_t>(times);
    const Text* text = as_text(sequence);
    const std::size_t size = text ? text->size() : as_list(sequence)->items.size() * sizeof(Value);
    if (size != 0 && count > repeated_bytes_max / size) {
        throw TemplateError("a repetition is too long");
    }
    if (text) {
        Text made;
        for (std::size_t i = 0; i < count && size != 0; ++i)
            made.append(*text);
        return heap.text(std::move(made));
    }
    const List& list = *as_list(sequence);
    std::vector<Value> items;
    for (std::size_t i = 0; i < count && size != 0; ++i) {
        items.insert(items.end(), list.items.begin(), list.items.end());
    }
    return heap.list(std::move(items), list.is_tuple);
}

bool is_sequence(const Value& value) {
    return as_text(value) || as_list(value);
}

}  // namespace

Value arithmetic(Heap& heap, std::string_view op, const Value& a, const Value& b) {
    if (op == "%" && as_text(a)) return heap.text(format_percent(*as_text(a), b));
    if (is<Undefined>(a) || is<Undefined>(b)) {
        throw TemplateError(fmt::format("'{}' with an undefined value", op));
    }
    if (is_integer(a) && is_integer(b)) {
        return integer_arithmetic(op, integer_of(a), integer_of(b));
    }
    if (is_number(a) && is_number(b)) return real_arithmetic(op, real_of(a), real_of(b));
    if (op == "+" && as_text(a) && as_text(b)) {
        const bool markup = as_text(a)->is_markup() || as_text(b)->is_markup();
        Text made = markup ? escape_html(*as_text(a)) : *as_text(a);
        made.append(markup ? escape_html(*as_text(b)) : *as_text(b));
        return heap.text(std::move(made));
    }
    const List* left = as_list(a);
    const List* right = as_list(b);
    if (op == "+" && left && right && left->is_tuple == right->is_tuple) {
        std::vector<Value> items = left->items;
        items.insert(items.end(), right->items.begin(), right->items.end());
        return heap.list(std::move(items), left->is_tuple);
    }
    if (op == "*" && is_sequence(a) && is_integer(b)) return repeated(heap, a, integer_of(b));
    if (op == "*" && is_integer(a) && is_sequence(b)) return repeated(heap, b, integer_of(a));
    fail_operands(op, a, b);
}

bool compare(Evaluator& evaluator, std::string_view op, const Value& a, const Value& b) {
    if (op == "==") return equal(a, b);
    if (op == "!=") return !equal(a, b);
    if (op == "<") return less(a, b);
    if (op == ">") return less(b, a);
    if (op == "<=") return !less(b, a);
    if (op == ">=") return !less(a, b);
    return contains(evaluator, b, a) == (op == "in");
}

bool contains(Evaluator& evaluator, const Value& container, const Value& item) {
    if (const Text* text = as_text(container)) {
        evaluator.spend(text->size() / 64);
        return text->bytes().find(text_of(item).bytes()) != std::string_view::npos;
    }
    if (const Dict* dict = as_dict(container)) {
        evaluator.spend(dict->items.size() / 16);
        check_hashable(item);
        return dict->find(item) != nullptr;
    }
    if (const List* list = as_list(container)) {
        evaluator.spend(list->items.size() / 16);
        for (const Value& one : list->items) {
            if (equal(one, item)) return true;
        }
        return false;
    }
    if (is<Undefined>(container)) return false;
    throw TemplateError(fmt::format("'in' does not work on '{}'", type_name(container)));
}

}  // namespace troupe::model::jinja
