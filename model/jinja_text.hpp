// A string that remembers, byte by byte, who wrote it: the template (and whoever is trusted as
// much) or a user. Every operation that keeps bytes keeps their marks, so that after rendering
// control tokens can be recognised in template-written text alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::model::jinja {

enum class Origin : char { from_template, from_user };

class Text {
 public:
    Text() = default;
    Text(std::string_view bytes, Origin origin) { append(bytes, origin); }

    [[nodiscard]] std::string_view bytes() const { return bytes_; }
    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    [[nodiscard]] Origin origin(std::size_t at) const { return static_cast<Origin>(marks_[at]); }

    void append(std::string_view bytes, Origin origin) {
        bytes_ += bytes;
        marks_.append(bytes.size(), static_cast<char>(origin));
    }
    void append(const Text& text) {
        bytes_ += text.bytes_;
        marks_ += text.marks_;
    }
    void append_part(const Text& text, std::size_t begin, std::size_t count) {
        bytes_.append(text.bytes_, begin, count);
        marks_.append(text.marks_, begin, count);
    }
    // Whether it is HTML already, by |safe or |escape: what "+" adds to it is escaped.
    [[nodiscard]] bool is_markup() const { return is_markup_; }
    void set_markup() { is_markup_ = true; }

    [[nodiscard]] Text part(std::size_t begin, std::size_t count) const {
        Text made;
        made.append_part(*this, begin, count);
        return made;
    }

 private:
    std::string bytes_;
    std::string marks_;  // an Origin for each byte
    bool is_markup_ = false;
};

}  // namespace troupe::model::jinja
