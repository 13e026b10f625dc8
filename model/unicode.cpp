#include "model/unicode.hpp"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "model/unicode_data.hpp"
#include "model/utf8.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {

namespace {

constexpr char32_t code_points_end = 0x110000;

// Hangul syllables are composed by arithmetic: the standard, section 3.12.
constexpr char32_t hangul_syllables = 0xAC00;
constexpr char32_t hangul_leads = 0x1100;
constexpr char32_t hangul_vowels = 0x1161;
constexpr char32_t hangul_tails = 0x11A7;  // one before the first: none
constexpr char32_t lead_count = 19;
constexpr char32_t vowel_count = 21;
constexpr char32_t tail_count = 28;
constexpr char32_t syllable_count = lead_count * vowel_count * tail_count;

// Calls `visit(key, value)` for each "key=value;".
template <class Visit>
void for_each_entry(std::string_view data, const Visit& visit) {
    while (!data.empty()) {
        const std::size_t end = data.find(';');
        const std::size_t equals = data.find('=');
        visit(data.substr(0, equals), data.substr(equals + 1, end - equals - 1));
        data.remove_prefix(end + 1);
    }
}

// The first number of `text`, which it loses together with the character after it.
char32_t take_number(std::string_view& text, int base = 16) {
    std::uint32_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, base);
    TROUPE_ASSERT(parsed.ec == std::errc());
    const auto length = static_cast<std::size_t>(parsed.ptr - text.data());
    text.remove_prefix(std::min(length + 1, text.size()));
    return number;
}

// Code point -> code points.
class Mappings {
 public:
    explicit Mappings(std::string_view data) {
        for_each_entry(data, [this](std::string_view key, std::string_view value) {
            keys_.push_back(take_number(key));
            begins_.push_back(static_cast<std::uint32_t>(values_.size()));
            while (!value.empty())
                values_.push_back(take_number(value));
        });
        begins_.push_back(static_cast<std::uint32_t>(values_.size()));
    }

    // Empty where there is none.
    [[nodiscard]] std::u32string_view find(char32_t code_point) const {
        const auto found = std::lower_bound(keys_.begin(), keys_.end(), code_point);
        if (found == keys_.end() || *found != code_point) return {};
        const auto at = static_cast<std::size_t>(found - keys_.begin());
        return std::u32string_view(values_).substr(begins_[at], begins_[at + 1] - begins_[at]);
    }
    [[nodiscard]] const std::vector<char32_t>& keys() const { return keys_; }

 private:
    std::vector<char32_t> keys_;
    std::vector<std::uint32_t> begins_;
    std::u32string values_;
};

void append_mapped(std::string& out, const Mappings& mappings, char32_t code_point) {
    const std::u32string_view mapped = mappings.find(code_point);
    if (mapped.empty()) return append_utf8(out, code_point);
    for (const char32_t one : mapped)
        append_utf8(out, one);
}

class Classes {
 public:
    Classes() : classes_(code_points_end, 0) {
        constexpr std::string_view letters = "CLMmNPSZ";  // in the order of UnicodeClass
        for_each_entry(unicode_classes, [&](std::string_view range, std::string_view letter) {
            const char32_t first = take_number(range);
            const char32_t last = range.empty() ? first : take_number(range);
            const auto value = static_cast<std::uint8_t>(letters.find(letter[0]));
            for (char32_t c = first; c <= last; ++c)
                classes_[c] = value;
        });
    }
    [[nodiscard]] UnicodeClass of(char32_t c) const {
        return static_cast<UnicodeClass>(classes_[c]);
    }

 private:
    std::vector<std::uint8_t> classes_;
};

class Normalizer {
 public:
    Normalizer();

    [[nodiscard]] std::string run(std::string_view text, NormalForm form) const;

 private:
    static bool composes(NormalForm form) {
        return form == NormalForm::nfc || form == NormalForm::nfkc;
    }
    static bool is_compatible(NormalForm form) {
        return form == NormalForm::nfkd || form == NormalForm::nfkc;
    }
    static std::uint8_t flag(NormalForm form) {
        return static_cast<std::uint8_t>(1U << static_cast<unsigned>(form));
    }
    [[nodiscard]] bool stands_alone(char32_t c, NormalForm form) const {
        return (unstable_[c] & flag(form)) == 0;
    }
    void mark(char32_t first, char32_t end, std::initializer_list<NormalForm> forms);
    [[nodiscard]] std::uint8_t combining_class(char32_t c) const;
    void decompose(char32_t c, bool compatible, std::u32string& out) const;
    void sort_marks(std::u32string& text) const;
    [[nodiscard]] char32_t compose(char32_t first, char32_t second) const;
    void compose_all(std::u32string& text) const;

    Mappings canonical_{unicode_canonical};
    Mappings compatibility_{unicode_compatibility};
    std::vector<std::pair<std::uint64_t, char32_t>> compositions_;  // first << 32 | second
    std::vector<std::pair<char32_t, std::uint8_t>> combining_;
    // A bit for each form: the code point changes, or may change or move with what stands before.
    std::vector<std::uint8_t> unstable_ = std::vector<std::uint8_t>(code_points_end, 0);
};

std::uint64_t pair_key(char32_t first, char32_t second) {
    return std::uint64_t{first} << 32 | second;
}

Normalizer::Normalizer() {
    using enum NormalForm;
    std::vector<char32_t> composed;
    for_each_entry(unicode_compositions, [&](std::string_view pair, std::string_view made) {
        const char32_t first = take_number(pair);
        const char32_t second = take_number(pair);
        compositions_.emplace_back(pair_key(first, second), take_number(made));
        composed.push_back(compositions_.back().second);
        mark(second, second + 1, {nfc, nfkc});
    });
    std::sort(compositions_.begin(), compositions_.end());
    std::sort(composed.begin(), composed.end());
    for_each_entry(unicode_combining_classes, [&](std::string_view range, std::string_view value) {
        const char32_t first = take_number(range);
        const char32_t last = range.empty() ? first : take_number(range);
        const auto of_class = static_cast<std::uint8_t>(take_number(value, 10));
        for (char32_t c = first; c <= last; ++c)
            combining_.emplace_back(c, of_class);
        mark(first, last + 1, {nfd, nfc, nfkd, nfkc});
    });
    for (const char32_t c : canonical_.keys()) {
        mark(c, c + 1, {nfd, nfkd});
        if (!std::binary_search(composed.begin(), composed.end(), c)) mark(c, c + 1, {nfc, nfkc});
    }
    for (const char32_t c : compatibility_.keys())
        mark(c, c + 1, {nfkd, nfkc});
    mark(hangul_syllables, hangul_syllables + syllable_count, {nfd, nfkd});
    mark(hangul_vowels, hangul_vowels + vowel_count, {nfc, nfkc});
    mark(hangul_tails + 1, hangul_tails + tail_count, {nfc, nfkc});
}

void Normalizer::mark(char32_t first, char32_t end, std::initializer_list<NormalForm> forms) {
    for (char32_t c = first; c < end; ++c) {
        for (const NormalForm form : forms)
            unstable_[c] |= flag(form);
    }
}

std::uint8_t Normalizer::combining_class(char32_t c) const {
    const auto found =
        std::lower_bound(combining_.begin(), combining_.end(), std::pair(c, std::uint8_t{0}));
    return found != combining_.end() && found->first == c ? found->second : 0;
}

void Normalizer::decompose(char32_t c, bool compatible, std::u32string& out) const {
    if (c >= hangul_syllables && c < hangul_syllables + syllable_count) {
        const char32_t at = c - hangul_syllables;
        out.push_back(hangul_leads + at / (vowel_count * tail_count));
        out.push_back(hangul_vowels + at / tail_count % vowel_count);
        if (at % tail_count != 0) out.push_back(hangul_tails + at % tail_count);
        return;
    }
    std::u32string_view parts = compatible ? compatibility_.find(c) : std::u32string_view();
    if (parts.empty()) parts = canonical_.find(c);
    if (parts.empty()) {
        out.push_back(c);
    } else {
        out += parts;
    }
}

void Normalizer::sort_marks(std::u32string& text) const {
    const auto is_mark = [this](char32_t c) { return combining_class(c) != 0; };
    for (auto begin = text.begin(); begin != text.end();) {
        begin = std::find_if(begin, text.end(), is_mark);
        const auto end = std::find_if_not(begin, text.end(), is_mark);
        std::stable_sort(begin, end, [this](char32_t a, char32_t b) {
            return combining_class(a) < combining_class(b);
        });
        begin = end;
    }
}

// The code point of the two, or 0.
char32_t Normalizer::compose(char32_t first, char32_t second) const {
    if (first >= hangul_leads && first < hangul_leads + lead_count && second >= hangul_vowels &&
        second < hangul_vowels + vowel_count) {
        return hangul_syllables +
               ((first - hangul_leads) * vowel_count + (second - hangul_vowels)) * tail_count;
    }
    const bool is_lead_vowel = first >= hangul_syllables &&
                               first < hangul_syllables + syllable_count &&
                               (first - hangul_syllables) % tail_count == 0;
    if (is_lead_vowel && second > hangul_tails && second < hangul_tails + tail_count) {
        return first + (second - hangul_tails);
    }
    const std::uint64_t key = pair_key(first, second);
    const auto found =
        std::lower_bound(compositions_.begin(), compositions_.end(), std::pair(key, char32_t{0}));
    return found != compositions_.end() && found->first == key ? found->second : 0;
}

void Normalizer::compose_all(std::u32string& text) const {
    std::size_t starter = text.size();  // none yet
    std::size_t kept = 0;
    int last_class = -1;  // of what is kept behind the starter
    for (const char32_t c : std::u32string(text)) {
        const int of_class = combining_class(c);
        const bool reaches = starter < kept && last_class < of_class;
        if (const char32_t made = reaches ? compose(text[starter], c) : 0) {
            text[starter] = made;
            continue;
        }
        if (of_class == 0) starter = kept;
        last_class = of_class == 0 ? -1 : of_class;
        text[kept++] = c;
    }
    text.resize(kept);
}

std::string Normalizer::run(std::string_view text, NormalForm form) const {
    std::string out;
    std::u32string chunk;
    const auto flush = [&] {
        sort_marks(chunk);
        if (composes(form)) compose_all(chunk);
        for (const char32_t c : chunk)
            append_utf8(out, c);
        chunk.clear();
    };
    std::size_t copied = 0;  // bytes of `text` that are in `out` or `chunk`
    std::size_t last = 0;    // where the last character that stands alone begins
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Unit unit = next_utf8(text.substr(at));
        const bool complete = unit.form == Utf8Form::complete;
        const std::size_t next = at + unit.length;
        if (!complete) {
            flush();
            out += text.substr(copied, next - copied);
            copied = last = next;
        } else if (stands_alone(unit.code_point, form)) {
            if (!chunk.empty()) {
                flush();
                copied = at;
            }
            last = at;
        } else {
            if (chunk.empty()) {
                out += text.substr(copied, last - copied);
                for (std::size_t i = last; i < at;) {
                    const Utf8Unit before = next_utf8(text.substr(i));
                    decompose(before.code_point, is_compatible(form), chunk);
                    i += before.length;
                }
            }
            decompose(unit.code_point, is_compatible(form), chunk);
            copied = last = next;
        }
        at = next;
    }
    flush();
    return out += text.substr(copied);
}

const Classes& classes() {
    static const Classes made;
    return made;
}

const Normalizer& normalizer() {
    static const Normalizer made;
    return made;
}

}  // namespace

UnicodeClass unicode_class(char32_t code_point) {
    TROUPE_ASSERT(code_point < code_points_end);
    return classes().of(code_point);
}

void append_lower(std::string& out, char32_t code_point) {
    if (code_point < 0x80) {
        const bool changes = code_point >= 'A' && code_point <= 'Z';
        return out.push_back(static_cast<char>(changes ? code_point + 32 : code_point));
    }
    static const Mappings mappings(unicode_lower);
    append_mapped(out, mappings, code_point);
}

void append_upper(std::string& out, char32_t code_point) {
    if (code_point < 0x80) {
        const bool changes = code_point >= 'a' && code_point <= 'z';
        return out.push_back(static_cast<char>(changes ? code_point - 32 : code_point));
    }
    static const Mappings mappings(unicode_upper);
    append_mapped(out, mappings, code_point);
}

std::string normalize(std::string_view text, NormalForm form) {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
    return normalizer().run(text, form);
}

}  // namespace troupe::model
