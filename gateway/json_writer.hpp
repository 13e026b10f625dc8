// Appends JSON to a string that is reused from frame to frame. For frames that are made for every
// few tokens; no tree, no allocation once the string has grown. Any thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::gateway {

// The text in quotes, escaped by RFC 8259 and no more than that. Must be valid UTF-8.
void append_json_string(std::string& out, std::string_view text);

// The shortest decimal that reads back as the same double; null where it is not finite.
void append_json_number(std::string& out, double value);
void append_json_integer(std::string& out, std::int64_t value);
void append_json_unsigned(std::string& out, std::uint64_t value);

// Writes one object: JsonObject object(out); object.field("a").string("x"); object.close();
// Nothing is closed by itself, so that a writer can be handed on half way.
class JsonObject {
 public:
    explicit JsonObject(std::string& out) : out_(out) { out_ += '{'; }

    // `"name":`, after a comma where one is due; the value is the caller's to append.
    // `name` needs no escapes.
    std::string& field(std::string_view name) {
        out_ += std::exchange(first_, false) ? "\"" : ",\"";
        out_ += name;
        out_ += "\":";
        return out_;
    }
    // Whole fields, as they are: R"("a":1,"b":2)".
    void fields(std::string_view json) {
        if (!std::exchange(first_, false)) out_ += ',';
        out_ += json;
    }
    void text(std::string_view name, std::string_view value) {
        append_json_string(field(name), value);
    }
    void json(std::string_view name, std::string_view value) { field(name) += value; }
    void boolean(std::string_view name, bool value) { field(name) += value ? "true" : "false"; }
    void number(std::string_view name, double value) { append_json_number(field(name), value); }
    void integer(std::string_view name, std::signed_integral auto value) {
        append_json_integer(field(name), value);
    }
    void integer(std::string_view name, std::unsigned_integral auto value) {
        append_json_unsigned(field(name), value);
    }
    void null(std::string_view name) { field(name) += "null"; }
    void close() { out_ += '}'; }

 private:
    std::string& out_;
    bool first_ = true;
};

}  // namespace troupe::gateway
