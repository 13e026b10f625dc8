// Filters on lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "model/jinja_evaluator.hpp"
#include "model/jinja_strings.hpp"

namespace troupe::model::jinja {

namespace {

Arguments rest_of(const Arguments& arguments, std::size_t count) {
    Arguments rest;
    for (std::size_t i = count; i < arguments.positional.size(); ++i) {
        rest.positional.push_back(arguments.positional[i]);
    }
    rest.named = arguments.named;
    return rest;
}

// What "user.name.0" leads to.
Value follow(Evaluator& evaluator, Value value, const Value& path) {
    if (!as_text(path)) return evaluator.item(value, path);
    for (const Text& step : split(text_of(path), ".", -1)) {
        const char* end = step.bytes().data() + step.size();
        std::int64_t index = 0;
        const auto parsed = std::from_chars(step.bytes().data(), end, index);
        const bool is_index = parsed.ec == std::errc() && parsed.ptr == end;
        value = evaluator.item(value, is_index ? Value(index) : evaluator.heap().text(step));
    }
    return value;
}

// The value by which an item is compared: an attribute, without case unless asked for.
struct SortKey {
    const Value* path = nullptr;
    bool case_sensitive = false;

    Value of(Evaluator& evaluator, const Value& item) const {
        const bool has_path = path && !is<None>(*path);
        Value key = has_path ? follow(evaluator, item, *path) : item;
        if (const Text* text = as_text(key); text && !case_sensitive) {
            key = evaluator.heap().text(lower(*text));
        }
        return key;
    }
};

std::vector<std::pair<Value, Value>> keyed(Evaluator& evaluator, const Value& input,
                                           const SortKey& key) {
    std::vector<std::pair<Value, Value>> items;
    for (const Value& item : evaluator.iterate(input)) {
        items.emplace_back(key.of(evaluator, item), item);
    }
    return items;
}

// `lenient`: equal keys are never put in order, so that a list of none can be sorted.
void sort_by_key(Evaluator& evaluator, std::vector<std::pair<Value, Value>>& items, bool reverse,
                 bool lenient) {
    evaluator.spend(4 * items.size());
    std::stable_sort(items.begin(), items.end(), [=](const auto& a, const auto& b) {
        if (lenient && equal(a.first, b.first)) return false;
        return reverse ? less(b.first, a.first) : less(a.first, b.first);
    });
}

Value filter_length(Evaluator&, const Value& input, const Arguments&) {
    return length_of(input);
}

Value filter_first(Evaluator& evaluator, const Value& input, const Arguments&) {
    const std::vector<Value> items = evaluator.iterate(input);
    return items.empty() ? Undefined{} : items.front();
}

Value filter_last(Evaluator& evaluator, const Value& input, const Arguments&) {
    const std::vector<Value> items = evaluator.iterate(input);
    return items.empty() ? Undefined{} : items.back();
}

Value filter_join(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const Value* given = argument(arguments, 0, "d");
    const Value* path = argument(arguments, 1, "attribute");
    const Text separator = given ? to_text(*given) : Text();
    Text made;
    bool first = true;
    for (const Value& item : evaluator.iterate(input)) {
        if (!first) made.append(separator);
        made.append(to_text(path ? follow(evaluator, item, *path) : item));
        first = false;
    }
    return evaluator.heap().text(std::move(made));
}

Value filter_list(Evaluator& evaluator, const Value& input, const Arguments&) {
    return evaluator.heap().list(evaluator.iterate(input));
}

Value filter_items(Evaluator& evaluator, const Value& input, const Arguments&) {
    if (is<Undefined>(input)) return evaluator.heap().list({});
    const Dict* dict = as_dict(input);
    if (!dict) throw TemplateError(fmt::format("items of '{}', not of a dict", type_name(input)));
    std::vector<Value> items;
    for (const auto& [key, value] : dict->items) {
        items.push_back(evaluator.heap().list({key, value}, true));
    }
    return evaluator.heap().list(std::move(items));
}

Value filter_map(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const auto named = [&](std::string_view name) -> const Value* {
        for (const auto& [known, value] : arguments.named) {
            if (known == name) return &value;
        }
        return nullptr;
    };
    std::vector<Value> made;
    if (!truthy(input)) return evaluator.heap().list({});  // also none, as in Jinja2
    const Value* path = named("attribute");
    const Value* fallback = named("default");
    for (const Value& item : evaluator.iterate(input)) {
        if (path) {
            const Value value = follow(evaluator, item, *path);
            made.push_back(is<Undefined>(value) && fallback ? *fallback : value);
        } else {
            const std::string_view filter = text_of(required(arguments, 0, "filter")).bytes();
            made.push_back(apply_filter(evaluator, filter, item, rest_of(arguments, 1)));
        }
    }
    return evaluator.heap().list(std::move(made));
}

// select, reject, selectattr, rejectattr.
template <bool by_attribute, bool keep>
Value filter_select(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const std::size_t test_at = by_attribute ? 1 : 0;
    std::vector<Value> made;
    if (!truthy(input)) return evaluator.heap().list({});  // also none, as in Jinja2
    for (const Value& item : evaluator.iterate(input)) {
        const Value value =
            by_attribute ? follow(evaluator, item, required(arguments, 0, "attribute")) : item;
        bool passes = truthy(value);
        if (arguments.positional.size() > test_at) {
            const std::string_view test = text_of(arguments.positional[test_at]).bytes();
            passes = apply_test(evaluator, test, value, rest_of(arguments, test_at + 1));
        }
        if (passes == keep) made.push_back(item);
    }
    return evaluator.heap().list(std::move(made));
}

Value filter_sort(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const bool reverse = bool_argument(arguments, 0, "reverse", false);
    const SortKey key{argument(arguments, 2, "attribute"),
                      bool_argument(arguments, 1, "case_sensitive", false)};
    auto items = keyed(evaluator, input, key);
    sort_by_key(evaluator, items, reverse, true);
    std::vector<Value> made;
    for (const auto& item : items)
        made.push_back(item.second);
    return evaluator.heap().list(std::move(made));
}

Value filter_dictsort(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const Dict* dict = as_dict(input);
    if (!dict) throw TemplateError(fmt::format("dictsort of '{}'", type_name(input)));
    const Value* by = argument(arguments, 1, "by");
    const bool by_value = by && text_of(*by).bytes() == "value";
    const SortKey key{nullptr, bool_argument(arguments, 0, "case_sensitive", false)};
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [name, value] : dict->items) {
        items.emplace_back(key.of(evaluator, by_value ? value : name),
                           evaluator.heap().list({name, value}, true));
    }
    sort_by_key(evaluator, items, bool_argument(arguments, 2, "reverse", false), false);
    std::vector<Value> made;
    for (const auto& item : items)
        made.push_back(item.second);
    return evaluator.heap().list(std::move(made));
}

template <bool largest>
Value filter_extreme(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const SortKey key{argument(arguments, 1, "attribute"),
                      bool_argument(arguments, 0, "case_sensitive", false)};
    auto items = keyed(evaluator, input, key);
    if (items.empty()) return Undefined{};
    const auto* best = &items[0];
    for (const auto& item : items) {
        if (largest ? less(best->first, item.first) : less(item.first, best->first)) best = &item;
    }
    return best->second;
}

Value filter_unique(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const SortKey key{argument(arguments, 1, "attribute"),
                      bool_argument(arguments, 0, "case_sensitive", false)};
    std::vector<Value> seen;
    std::vector<Value> made;
    for (const auto& [by, item] : keyed(evaluator, input, key)) {
        evaluator.spend(seen.size() / 16);
        check_hashable(by);
        const Value& wanted = by;
        const bool known = std::any_of(seen.begin(), seen.end(),
                                       [&](const Value& other) { return equal(other, wanted); });
        if (known) continue;
        seen.push_back(by);
        made.push_back(item);
    }
    return evaluator.heap().list(std::move(made));
}

Value filter_groupby(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const SortKey key{&required(arguments, 0, "attribute"),
                      bool_argument(arguments, 2, "case_sensitive", false)};
    auto items = keyed(evaluator, input, key);
    sort_by_key(evaluator, items, false, false);
    std::vector<Value> groups;
    for (std::size_t begin = 0; begin < items.size();) {
        std::vector<Value> members;
        std::size_t end = begin;
        while (end < items.size() && equal(items[end].first, items[begin].first)) {
            members.push_back(items[end++].second);
        }
        const Value name = follow(evaluator, items[begin].second, *key.path);
        const Value list = evaluator.heap().list(std::move(members));
        groups.push_back(evaluator.heap().list({name, list}, true));
        begin = end;
    }
    return evaluator.heap().list(std::move(groups));
}

Value filter_reverse(Evaluator& evaluator, const Value& input, const Arguments&) {
    std::vector<Value> items = evaluator.iterate(input);
    std::reverse(items.begin(), items.end());
    if (!as_text(input)) return evaluator.heap().list(std::move(items));
    Text made;
    for (const Value& item : items)
        made.append(text_of(item));
    return evaluator.heap().text(std::move(made));
}

Value filter_sum(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const Value* path = argument(arguments, 0, "attribute");
    const Value* start = argument(arguments, 1, "start");
    Value sum = start ? *start : Value(std::int64_t{0});
    for (const Value& item : evaluator.iterate(input)) {
        const bool has_path = path && !is<None>(*path);
        const Value value = has_path ? follow(evaluator, item, *path) : item;
        sum = arithmetic(evaluator.heap(), "+", sum, value);
    }
    return sum;
}

Value filter_batch(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const std::int64_t size = integer_of(required(arguments, 0, "linecount"));
    const Value* fill = argument(arguments, 1, "fill_with");
    if (size < 1 || size > 1'000'000) throw TemplateError("batch wants a size of 1 or more");
    std::vector<Value> batches;
    std::vector<Value> batch;
    const auto flush = [&] { batches.push_back(evaluator.heap().list(std::exchange(batch, {}))); };
    for (const Value& item : evaluator.iterate(input)) {
        batch.push_back(item);
        if (static_cast<std::int64_t>(batch.size()) == size) flush();
    }
    if (batch.empty()) return evaluator.heap().list(std::move(batches));
    if (fill && !is<None>(*fill)) {
        evaluator.spend(static_cast<std::size_t>(size));
        batch.resize(static_cast<std::size_t>(size), *fill);
    }
    flush();
    return evaluator.heap().list(std::move(batches));
}

// `count` columns, of which the first ones have one item more.
Value filter_slice(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const std::int64_t count = integer_of(required(arguments, 0, "slices"));
    const Value* fill = argument(arguments, 1, "fill_with");
    if (count < 1 || count > 1'000'000) throw TemplateError("slice wants a count of 1 or more");
    evaluator.spend(static_cast<std::size_t>(count));
    const std::vector<Value> items = evaluator.iterate(input);
    const auto columns = static_cast<std::size_t>(count);
    const std::size_t longer = items.size() % columns;
    std::vector<Value> made;
    std::size_t at = 0;
    for (std::size_t i = 0; i < columns; ++i) {
        const std::size_t size = items.size() / columns + (i < longer ? 1 : 0);
        const auto begin = items.begin() + static_cast<std::ptrdiff_t>(at);
        std::vector<Value> column(begin, begin + static_cast<std::ptrdiff_t>(size));
        if (fill && !is<None>(*fill) && i >= longer) column.push_back(*fill);
        made.push_back(evaluator.heap().list(std::move(column)));
        at += size;
    }
    return evaluator.heap().list(std::move(made));
}

constexpr Named<FilterFunction> sequence_filters[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"reverse", filter_reverse},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
    return find_named(sequence_filters, name);
}

}  // namespace troupe::model::jinja
