// The functions that every template can call, and how built-in things read their arguments.
#include <fmt/format.h>

#include "model/jinja_evaluator.hpp"

namespace troupe::model::jinja {

namespace {

constexpr std::int64_t range_max = 100'000;  // that of Jinja's own sandbox

Value function_range(Evaluator& evaluator, const Arguments& arguments) {
    const std::size_t count = arguments.positional.size();
    if (count < 1 || count > 3) throw TemplateError("range() takes one to three numbers");
    const std::int64_t first = integer_of(arguments.positional[0]);
    const std::int64_t begin = count == 1 ? 0 : first;
    const std::int64_t end = count == 1 ? first : integer_of(arguments.positional[1]);
    const std::int64_t step = count == 3 ? integer_of(arguments.positional[2]) : 1;
    if (step == 0) throw TemplateError("the step of a range may not be 0");
    const double length =
        (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
    if (length > static_cast<double>(range_max)) throw TemplateError("a range is too long");
    std::vector<Value> items;
    const auto wanted = static_cast<std::int64_t>(length < 0 ? 0 : length + 1);
    for (std::int64_t i = 0; i < wanted; ++i) {
        std::int64_t at = 0;
        if (__builtin_mul_overflow(i, step, &at) || __builtin_add_overflow(at, begin, &at)) break;
        if (step > 0 ? at >= end : at <= end) break;
        items.push_back(at);
    }
    evaluator.spend(items.size());
    return evaluator.heap().list(std::move(items));
}

// A dict given first, and names.
Dict merged_arguments(Evaluator& evaluator, const Arguments& arguments) {
    Dict made;
    if (!arguments.positional.empty()) {
        const Value& first = arguments.positional[0];
        if (const Dict* dict = as_dict(first)) {
            made = *dict;
        } else {
            for (const Value& pair : evaluator.iterate(first)) {
                const std::vector<Value> parts = evaluator.iterate(pair);
                if (parts.size() != 2) throw TemplateError("dict() takes pairs");
                made.set(parts[0], parts[1]);
            }
        }
    }
    for (const auto& [name, value] : arguments.named) {
        made.set(evaluator.heap().text(name), value);
    }
    return made;
}

Value function_dict(Evaluator& evaluator, const Arguments& arguments) {
    return evaluator.heap().dict(merged_arguments(evaluator, arguments));
}

Value function_namespace(Evaluator& evaluator, const Arguments& arguments) {
    Namespace made;
    for (const auto& [name, value] : merged_arguments(evaluator, arguments).items) {
        made.attributes.emplace_back(text_of(name).bytes(), value);
    }
    return evaluator.heap().make(std::move(made));
}

Value function_raise_exception(Evaluator&, const Arguments& arguments) {
    const Text message = to_text(required(arguments, 0, "message"));
    throw Refusal(std::string(message.bytes()));
}

Value function_strftime_now(Evaluator& evaluator, const Arguments& arguments) {
    const std::string format(text_of(required(arguments, 0, "format")).bytes());
    char text[256];
    const std::size_t length =
        std::strftime(text, sizeof text, format.c_str(), &evaluator.options().now);
    if (length == 0 && !format.empty()) throw TemplateError("a date is too long");
    return evaluator.heap().text(std::string_view(text, length));
}

// An object whose next() goes round its items.
Value function_cycler(Evaluator& evaluator, const Arguments& arguments) {
    if (arguments.positional.empty()) throw TemplateError("cycler() wants items");
    Heap& heap = evaluator.heap();
    auto* const at = heap.make(std::size_t{0});
    const auto* const items = heap.make(arguments.positional);
    Namespace made;
    made.attributes.emplace_back(
        "next", heap.make(Callable{"next", [at, items](Evaluator&, const Arguments&) -> Value {
                                       return (*items)[(*at)++ % items->size()];
                                   }}));
    return heap.make(std::move(made));
}

// A function that gives nothing the first time and its separator afterwards.
Value function_joiner(Evaluator& evaluator, const Arguments& arguments) {
    Heap& heap = evaluator.heap();
    const Value* given = argument(arguments, 0, "sep");
    const Value separator = given ? *given : heap.text(", ");
    const Value nothing = heap.text("");
    auto* const used = heap.make(false);
    return heap.make(
        Callable{"joiner", [used, separator, nothing](Evaluator&, const Arguments&) -> Value {
                     return std::exchange(*used, true) ? separator : nothing;
                 }});
}

constexpr Named<GlobalFunction> globals[] = {
    {"cycler", function_cycler},
    {"dict", function_dict},
    {"joiner", function_joiner},
    {"namespace", function_namespace},
    {"raise_exception", function_raise_exception},
    {"range", function_range},
    {"strftime_now", function_strftime_now},
};

}  // namespace

GlobalFunction find_global(std::string_view name) {
    return find_named(globals, name);
}

const Value* argument(const Arguments& arguments, std::size_t at, std::string_view name) {
    if (at < arguments.positional.size()) return &arguments.positional[at];
    for (const auto& [known, value] : arguments.named) {
        if (known == name) return &value;
    }
    return nullptr;
}

const Value& required(const Arguments& arguments, std::size_t at, std::string_view name) {
    const Value* given = argument(arguments, at, name);
    if (!given) throw TemplateError(fmt::format("the argument '{}' is missing", name));
    return *given;
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t at, std::string_view name,
                              std::int64_t fallback) {
    const Value* given = argument(arguments, at, name);
    return given && !is<None>(*given) ? integer_of(*given) : fallback;
}

bool bool_argument(const Arguments& arguments, std::size_t at, std::string_view name,
                   bool fallback) {
    const Value* given = argument(arguments, at, name);
    return given ? truthy(*given) : fallback;
}

std::int64_t length_of(const Value& value) {
    std::size_t count = 0;
    if (const Text* text = as_text(value)) {
        count = count_characters(text->bytes());
    } else if (const List* list = as_list(value)) {
        count = list->items.size();
    } else if (const Dict* dict = as_dict(value)) {
        count = dict->items.size();
    } else if (!is<Undefined>(value)) {
        throw TemplateError(fmt::format("'{}' has no length", type_name(value)));
    }
    return static_cast<std::int64_t>(count);
}

const Text& text_of(const Value& value) {
    const Text* text = as_text(value);
    if (!text) throw TemplateError(fmt::format("'{}' where a string is wanted", type_name(value)));
    return *text;
}

}  // namespace troupe::model::jinja
