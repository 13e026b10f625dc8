// A Jinja engine for chat templates: the language as Jinja2 3.1 with the set-up of Hugging Face
// transformers (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, tojson without ASCII
// escapes). Templates come from model files and are not trusted: every rendering is bounded in
// steps, depth, bytes built and bytes written, and nothing outside of its context is reachable.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string_view>

#include "model/jinja_ast.hpp"
#include "model/jinja_lexer.hpp"
#include "model/jinja_value.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model::jinja {

inline constexpr std::size_t source_bytes_max = std::size_t{1} << 20;

struct RenderLimits {
    std::size_t steps = 5'000'000;  // expressions and statements
    std::size_t output_bytes = std::size_t{64} << 20;
    int depth = 1000;  // of nested statements, expressions and calls
};

struct RenderOptions {
    RenderLimits limits;
    std::tm now{};  // what strftime_now() formats
};

// Immutable: one Template serves any number of threads.
class Template {
 public:
    // Errors: invalid_input with the line, for source that is no template or too large.
    [[nodiscard]] static Result<Template> compile(std::string_view source,
                                                  const LexerOptions& options = {});

    // `context` and whatever it points at live in `heap`, and so does what the rendering builds.
    // Errors: invalid_input with the line, for what the template raises or does wrong, and for
    // limits that are reached.
    [[nodiscard]] Result<Text> render(Heap& heap, const Dict& context,
                                      const RenderOptions& options = {}) const;

 private:
    explicit Template(std::shared_ptr<const Block> body) : body_(std::move(body)) {}

    std::shared_ptr<const Block> body_;
};

}  // namespace troupe::model::jinja
