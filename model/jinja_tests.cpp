// What may stand after "is".
#include <fmt/format.h>

#include <algorithm>
#include <array>

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

struct Entry {
    std::string_view name;
    TestFunction function;
};

constexpr std::array entries = {
    Entry{"boolean", test_type<bool>},
    Entry{"callable", test_callable},
    Entry{"defined", test_defined},
    Entry{"divisibleby", test_divisible},
    Entry{"eq", test_compare<op_eq>},
    Entry{"equalto", test_compare<op_eq>},
    Entry{"escaped", test_escaped},
    Entry{"even", test_parity<0>},
    Entry{"false", test_bool<false>},
    Entry{"filter", test_filter},
    Entry{"float", test_type<double>},
    Entry{"ge", test_compare<op_ge>},
    Entry{"greaterthan", test_compare<op_gt>},
    Entry{"gt", test_compare<op_gt>},
    Entry{"in", test_in},
    Entry{"integer", test_type<std::int64_t>},
    Entry{"iterable", test_sequence},
    Entry{"le", test_compare<op_le>},
    Entry{"lessthan", test_compare<op_lt>},
    Entry{"lower", test_case<is_lower>},
    Entry{"lt", test_compare<op_lt>},
    Entry{"mapping", test_type<const Dict*>},
    Entry{"ne", test_compare<op_ne>},
    Entry{"none", test_type<None>},
    Entry{"number", test_number},
    Entry{"odd", test_parity<1>},
    Entry{"sameas", test_same},
    Entry{"sequence", test_sequence},
    Entry{"string", test_type<const Text*>},
    Entry{"test", test_test},
    Entry{"true", test_bool<true>},
    Entry{"undefined", test_type<Undefined>},
    Entry{"upper", test_case<is_upper>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
    for (const Entry& entry : entries) {
        if (entry.name == name) return entry.function;
    }
    return nullptr;
}

bool apply_test(Evaluator& evaluator, std::string_view name, const Value& input,
                const Arguments& arguments) {
    const TestFunction test = find_test(name);
    if (!test) throw TemplateError(fmt::format("the test '{}' is not known", name));
    return test(evaluator, input, arguments);
}

}  // namespace troupe::model::jinja
