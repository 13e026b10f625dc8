// The values that templates compute with, after Python's: a small tagged value whose larger parts
// live in a Heap. One Heap serves one rendering and frees everything at its end, so nothing is
// counted and cycles do no harm; what it holds is bounded by its budget. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja_text.hpp"

namespace troupe::model::jinja {

struct Callable;
struct Dict;
struct List;
struct Loop;
struct Namespace;

struct Undefined {
    friend bool operator==(Undefined, Undefined) { return true; }
};
struct None {
    friend bool operator==(None, None) { return true; }
};

using Value = std::variant<Undefined, None, bool, std::int64_t, double, const Text*, const List*,
                           const Dict*, Namespace*, const Loop*, const Callable*>;

// What ends a compilation or a rendering. Never leaves this folder's entry points, which turn it
// into an Error with a line number.
class TemplateError : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

// raise_exception(): the template's own words.
class Refusal : public TemplateError {
 public:
    using TemplateError::TemplateError;
};

struct List {
    std::vector<Value> items;
    bool is_tuple = false;
};

// In order of insertion.
struct Dict {
    std::vector<std::pair<Value, Value>> items;

    // Null where there is no such key.
    [[nodiscard]] const Value* find(std::string_view key) const;
    [[nodiscard]] const Value* find(const Value& key) const;
    void set(const Value& key, const Value& value);
};

// The only value that a template can change.
struct Namespace {
    std::vector<std::pair<std::string, Value>> attributes;
};

// The variable `loop` inside a for.
struct Loop {
    const std::vector<Value>* items = nullptr;
    std::size_t index0 = 0;
    std::size_t depth0 = 0;
    const Callable* recurse = nullptr;      // loop(...) of a recursive for
    std::vector<Value>* changed = nullptr;  // what changed() saw last
};

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

class Evaluator;

struct Callable {
    std::string name;
    std::function<Value(Evaluator&, const Arguments&)> call;
};

// Owns what values point at. Throws TemplateError once `budget_bytes` have been built in all.
class Heap {
 public:
    explicit Heap(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

    Heap(const Heap&) = delete;
    Heap& operator=(const Heap&) = delete;

    void charge(std::size_t bytes);

    template <class T>
    T* make(T object) {
        charge(sizeof(T) + 2 * sizeof(void*));
        auto owned = std::make_shared<T>(std::move(object));
        T* made = owned.get();
        objects_.push_back(std::move(owned));
        return made;
    }
    Value text(Text text);
    Value text(std::string_view bytes, Origin origin = Origin::from_template) {
        return text(Text(bytes, origin));
    }
    Value list(std::vector<Value> items, bool is_tuple = false);
    Value dict(Dict dict);

 private:
    std::size_t budget_bytes_;
    std::size_t built_bytes_ = 0;
    std::vector<std::shared_ptr<void>> objects_;
};

template <class T>
[[nodiscard]] bool is(const Value& value) {
    return std::holds_alternative<T>(value);
}
// The pointer or number inside, or null.
template <class T>
[[nodiscard]] const T* get(const Value& value) {
    return std::get_if<T>(&value);
}
[[nodiscard]] inline const Text* as_text(const Value& value) {
    const auto* text = get<const Text*>(value);
    return text ? *text : nullptr;
}
[[nodiscard]] inline const List* as_list(const Value& value) {
    const auto* list = get<const List*>(value);
    return list ? *list : nullptr;
}
[[nodiscard]] inline const Dict* as_dict(const Value& value) {
    const auto* dict = get<const Dict*>(value);
    return dict ? *dict : nullptr;
}

// "str", "int", ... as Python names them in its messages.
[[nodiscard]] std::string_view type_name(const Value& value);

[[nodiscard]] bool truthy(const Value& value);
[[nodiscard]] bool equal(const Value& a, const Value& b);
// a < b. Throws for kinds that have no order.
[[nodiscard]] bool less(const Value& a, const Value& b);

// Throws for what may not be a key: lists and dicts, also inside of a tuple.
void check_hashable(const Value& value);

// bool, int and float as a number.
[[nodiscard]] bool is_number(const Value& value);
[[nodiscard]] bool is_integer(const Value& value);  // bool counts, as in Python
[[nodiscard]] std::int64_t integer_of(const Value& value);
[[nodiscard]] double real_of(const Value& value);
[[nodiscard]] std::int64_t truncated(double value);  // towards zero; throws where it does not fit

// str() and repr().
[[nodiscard]] Text to_text(const Value& value);
void append_repr(Text& out, const Value& value, int depth = 0);
[[nodiscard]] std::string format_real(double value);

// Strings count in code points; an ill-formed byte counts as one.
[[nodiscard]] std::size_t count_characters(std::string_view bytes);
[[nodiscard]] std::vector<std::size_t> character_offsets(std::string_view bytes);  // and the end

// How deep values may nest where that is walked.
inline constexpr int nesting_max = 128;
void check_nesting(int depth);

}  // namespace troupe::model::jinja
