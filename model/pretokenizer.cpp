#include "model/pretokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/pretokenizer_expressions.hpp"
#include "model/utf8.hpp"
#include "runtime/base/assert.hpp"
#include "runtime/base/log.hpp"

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

class PreTokenizer::Step {
 public:
    [[nodiscard]] static Result<Step> make(const SplitStep& step) {
        Step made;
        made.behavior_ = step.behavior;
        made.invert_ = step.invert;
        int error = 0;
        PCRE2_SIZE error_at = 0;
        made.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(step.expression.data()),
                                       step.expression.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                       &error_at, nullptr));
        if (!made.code_) {
            return Error{ErrorKind::unsupported,
                         fmt::format("the tokenizer's expression \"{}\" is not understood at {}",
                                     log::escaped(step.expression, 200), error_at)};
        }
        made.jit_ = pcre2_jit_compile(made.code_.get(), PCRE2_JIT_COMPLETE) == 0;
        return made;
    }

    [[nodiscard]] SplitBehavior behavior() const { return behavior_; }
    [[nodiscard]] bool invert() const { return invert_; }

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
    SplitBehavior behavior_ = SplitBehavior::isolated;
    bool invert_ = false;
    bool jit_ = false;
};

// One call of split(): the scratch memory that PCRE2 wants, and the walk down the steps.
class PreTokenizer::Run {
 public:
    Run(const std::vector<Step>& steps, const Sink& sink) : steps_(steps), sink_(sink) {
        TROUPE_ASSERT(data_ != nullptr && context_ != nullptr, "out of memory");
        pcre2_set_match_limit(context_.get(), match_steps_max);
        pcre2_set_heap_limit(context_.get(), match_heap_kib_max);
    }

    // As deep as there are steps.
    void split(std::size_t level, std::string_view text) {
        if (text.empty()) return;
        if (level == steps_.size()) {
            sink_(text);
            return;
        }
        const Step& step = steps_[level];
        if (step.behavior() == SplitBehavior::isolated) {
            for_each_part(step, text, [&](Part part) { pass_on(level, text, part); });
            return;
        }
        for (const Part& part : arranged(step, text))
            pass_on(level, text, part);
    }

 private:
    struct Part {
        std::size_t begin = 0;
        std::size_t end = 0;
        bool is_match = false;
    };

    void pass_on(std::size_t level, std::string_view text, const Part& part) {
        split(level + 1, text.substr(part.begin, part.end - part.begin));
    }

    // The matches and what lies between them, in order.
    template <class Visit>
    void for_each_part(const Step& step, std::string_view text, const Visit& visit) {
        std::size_t done = 0;
        std::size_t from = 0;
        while (from < text.size()) {
            const int found = step.match(text, from, data_.get(), context_.get());
            if (found < 0) break;
            const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_.get());
            const std::size_t begin = offsets[0];
            const std::size_t end = offsets[1];
            if (begin > done) visit(Part{done, begin, false});
            // Only a model file's own expression matches nothing.
            if (end > begin) visit(Part{begin, end, true});
            done = std::max(done, end);
            from = end > begin ? end : end + next_length(text, end);
        }
        if (done < text.size()) visit(Part{done, text.size(), false});
    }

    static std::size_t next_length(std::string_view text, std::size_t at) {
        return at < text.size() ? next_utf8(text.substr(at)).length : 1;
    }

    // As tokenizers::NormalizedString::split() does it.
    std::vector<Part> arranged(const Step& step, std::string_view text) {
        std::vector<Part> parts;
        for_each_part(step, text, [&](Part part) {
            part.is_match = part.is_match != step.invert();
            parts.push_back(part);
        });
        const SplitBehavior behavior = step.behavior();
        if (behavior == SplitBehavior::removed) {
            std::erase_if(parts, [](const Part& part) { return part.is_match; });
            return parts;
        }
        const bool from_behind = behavior == SplitBehavior::merged_with_next;
        if (from_behind) std::reverse(parts.begin(), parts.end());
        std::vector<Part> made;
        bool last_is_match = false;
        for (const Part& part : parts) {
            const bool joins = behavior == SplitBehavior::contiguous
                                   ? part.is_match == last_is_match
                                   : part.is_match && !last_is_match;
            if (joins && !made.empty()) {
                made.back().begin = std::min(made.back().begin, part.begin);
                made.back().end = std::max(made.back().end, part.end);
            } else {
                made.push_back(part);
            }
            last_is_match = part.is_match;
        }
        if (from_behind) std::reverse(made.begin(), made.end());
        return made;
    }

    const std::vector<Step>& steps_;
    const Sink& sink_;
    std::unique_ptr<pcre2_match_data, FreeMatch> data_{pcre2_match_data_create(1, nullptr)};
    std::unique_ptr<pcre2_match_context, FreeContext> context_{pcre2_match_context_create(nullptr)};
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

Result<PreTokenizer> PreTokenizer::make(std::span<const SplitStep> steps) {
    PreTokenizer made;
    for (const SplitStep& step : steps) {
        Result<Step> compiled = Step::make(step);
        if (!compiled) return compiled.error();
        made.steps_.push_back(std::move(*compiled));
    }
    return made;
}

Result<PreTokenizer> PreTokenizer::make(std::string_view name) {
    const PreTokenizerKind* kind = find_pretokenizer(name);
    if (kind == nullptr) {
        return Error{ErrorKind::unsupported,
                     fmt::format("the pre-tokenizer \"{}\" (tokenizer.ggml.pre) is not known; "
                                 "these are: {}",
                                 log::escaped(name, 60), fmt::join(pretokenizer_names(), ", "))};
    }
    std::vector<SplitStep> steps;
    for (const std::string_view expression : kind->expressions)
        steps.push_back({std::string(expression)});
    Result<PreTokenizer> made = make(steps);
    TROUPE_ASSERT(made.has_value(), "a built-in expression does not compile");
    made->ignore_merges_ = kind->ignore_merges;
    return made;
}

void PreTokenizer::split(std::string_view text, const Sink& sink) const {
    Run(steps_, sink).split(0, text);
}

}  // namespace troupe::model
