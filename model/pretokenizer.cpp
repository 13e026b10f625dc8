#include "model/pretokenizer.hpp"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "model/pretokenizer_expressions.hpp"
#include "runtime/base/assert.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace troupe::model {

namespace {

constexpr std::uint32_t match_steps_max = 100'000'000;
constexpr std::uint32_t match_heap_kib_max = 64 * 1024;

struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

class PreTokenizer::Expression {
 public:
    explicit Expression(std::string_view pattern) {
        int error = 0;
        PCRE2_SIZE error_at = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP, &error, &error_at, nullptr));
        TROUPE_ASSERT(code_ != nullptr, "a built-in expression does not compile");
        jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
    }

    // Finds the first match at or after `from`; the offsets are in `data`. A PCRE2 error code.
    [[nodiscard]] int match(std::string_view text, std::size_t from, pcre2_match_data* data,
                            pcre2_match_context* context) const {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        if (jit_) {
            const int found =
                pcre2_jit_match(code_.get(), subject, text.size(), from, 0, data, context);
            if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
        }
        return pcre2_match(code_.get(), subject, text.size(), from,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
    }

 private:
    std::unique_ptr<pcre2_code, FreeCode> code_;
    bool jit_ = false;
};

// One call of split(): the scratch memory that PCRE2 wants, and the walk down the expressions.
class PreTokenizer::Run {
 public:
    Run(const std::vector<Expression>& expressions, const Sink& sink)
        : expressions_(expressions), sink_(sink) {
        TROUPE_ASSERT(data_ != nullptr && context_ != nullptr, "out of memory");
        pcre2_set_match_limit(context_.get(), match_steps_max);
        pcre2_set_heap_limit(context_.get(), match_heap_kib_max);
    }

    // As deep as there are expressions.
    void split(std::size_t level, std::string_view text) {
        if (text.empty()) return;
        if (level == expressions_.size()) {
            sink_(text);
            return;
        }
        std::size_t done = 0;
        while (done < text.size()) {
            const int found = expressions_[level].match(text, done, data_.get(), context_.get());
            if (found < 0) break;
            const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_.get());
            const std::size_t begin = offsets[0];
            const std::size_t end = offsets[1];
            TROUPE_ASSERT(end > begin, "no expression matches nothing");
            split(level + 1, text.substr(done, begin - done));
            split(level + 1, text.substr(begin, end - begin));
            done = end;
        }
        split(level + 1, text.substr(done));
    }

 private:
    const std::vector<Expression>& expressions_;
    const Sink& sink_;
    std::unique_ptr<pcre2_match_data, FreeMatch> data_{pcre2_match_data_create(1, nullptr)};
    std::unique_ptr<pcre2_match_context, FreeContext> context_{pcre2_match_context_create(nullptr)};
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

Result<PreTokenizer> PreTokenizer::make(std::string_view name) {
    const PreTokenizerKind* kind = find_pretokenizer(name);
    if (kind == nullptr) {
        return Error{ErrorKind::unsupported,
                     fmt::format("the pre-tokenizer '{}' (tokenizer.ggml.pre) is not known", name)};
    }
    PreTokenizer made;
    made.ignore_merges_ = kind->ignore_merges;
    for (const std::string_view pattern : kind->expressions)
        made.expressions_.emplace_back(pattern);
    return made;
}

void PreTokenizer::split(std::string_view text, const Sink& sink) const {
    Run(expressions_, sink).split(0, text);
}

}  // namespace troupe::model
