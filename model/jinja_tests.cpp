// What may stand after "is".
#include <fmt/format.h>

#include <algorithm>

#include "model/jinja_evaluator.hpp"
#include "model/jinja_strings.hpp"

namespace troupe::model::jinja {

namespace {

template <class T>
bool test_type(Evaluator&, const Value& input, const Arguments&) {
    return is<T>(input);
}

bool test_defined(Evaluator&, const Value& input, const Arguments&) {
    return !is<Undefined>(input);
}

template <bool expected>
bool test_bool(Evaluator&, const Value& input, const Arguments&) {
    const auto* boolean = get<bool>(input);
    return boolean && *boolean == expected;
}

bool test_number(Evaluator&, const Value& input, const Arguments&) {
    return is_number(input);
}

bool test_sequence(Evaluator&, const Value& input, const Arguments&) {
    return as_text(input) || as_list(input) || as_dict(input) || is<Undefined>(input);
}

bool test_callable(Evaluator&, const Value& input, const Arguments&) {
    return is<const Callable*>(input) || is<Undefined>(input);  // as in Jinja2
}

bool test_divisible(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const Value rest = arithmetic(evaluator.heap(), "%", input, required(arguments, 0, "num"));
    return !truthy(rest);
}

template <std::int64_t wanted>
bool test_parity(Evaluator& evaluator, const Value& input, const Arguments&) {
    const Value rest = arithmetic(evaluator.heap(), "%", input, std::int64_t{2});
    return equal(rest, wanted);
}

bool test_same(Evaluator&, const Value& input, const Arguments& arguments) {
    const Value& other = required(arguments, 0, "other");
    return input.index() == other.index() && equal(input, other);
}

template <OfKind of_kind>
bool test_case(Evaluator&, const Value& input, const Arguments&) {
    return have_case(to_text(input).bytes(), of_kind);
}

bool test_in(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    return contains(evaluator, required(arguments, 0, "seq"), input);
}

bool test_filter(Evaluator&, const Value& input, const Arguments&) {
    check_hashable(input);
    const Text* name = as_text(input);
    return name && find_filter(name->bytes()) != nullptr;
}

bool test_test(Evaluator&, const Value& input, const Arguments&) {
    check_hashable(input);
    const Text* name = as_text(input);
    return name && find_test(name->bytes()) != nullptr;
}

bool test_escaped(Evaluator&, const Value& input, const Arguments&) {
    const Text* text = as_text(input);
    return text && text->is_markup();
}

constexpr char op_eq[] = "==";
constexpr char op_ne[] = "!=";
constexpr char op_lt[] = "<";
constexpr char op_le[] = "<=";
constexpr char op_gt[] = ">";
constexpr char op_ge[] = ">=";

template <const char* op>
bool test_compare(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    return compare(evaluator, op, input, required(arguments, 0, "other"));
}

constexpr Named<TestFunction> tests[] = {
    {"boolean", test_type<bool>},
    {"callable", test_callable},
    {"defined", test_defined},
    {"divisibleby", test_divisible},
    {"eq", test_compare<op_eq>},
    {"equalto", test_compare<op_eq>},
    {"escaped", test_escaped},
    {"even", test_parity<0>},
    {"false", test_bool<false>},
    {"filter", test_filter},
    {"float", test_type<double>},
    {"ge", test_compare<op_ge>},
    {"greaterthan", test_compare<op_gt>},
    {"gt", test_compare<op_gt>},
    {"in", test_in},
    {"integer", test_type<std::int64_t>},
    {"iterable", test_sequence},
    {"le", test_compare<op_le>},
    {"lessthan", test_compare<op_lt>},
    {"lower", test_case<is_lower>},
    {"lt", test_compare<op_lt>},
    {"mapping", test_type<const Dict*>},
    {"ne", test_compare<op_ne>},
    {"none", test_type<None>},
    {"number", test_number},
    {"odd", test_parity<1>},
    {"sameas", test_same},
    {"sequence", test_sequence},
    {"string", test_type<const Text*>},
    {"test", test_test},
    {"true", test_bool<true>},
    {"undefined", test_type<Undefined>},
    {"upper", test_case<is_upper>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
    return find_named(tests, name);
}

bool apply_test(Evaluator& evaluator, std::string_view name, const Value& input,
                const Arguments& arguments) {
    const TestFunction test = find_test(name);
    if (!test) throw TemplateError(fmt::format("the test '{}' is not known", name));
    return test(evaluator, input, arguments);
}

}  // namespace troupe::model::jinja
