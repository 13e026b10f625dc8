#include "model/jinja.hpp"

#include <fmt/format.h>

#include "model/jinja_evaluator.hpp"
#include "model/jinja_parser.hpp"

namespace troupe::model::jinja {

Result<Template> Template::compile(std::string_view source, const LexerOptions& options) {
    if (source.size() > source_bytes_max) {
        return invalid_input(fmt::format("the template has {} bytes; at most {} are allowed",
                                         source.size(), source_bytes_max));
    }
    try {
        Parser parser(tokenize(source, options));
        return Template(std::make_shared<const Block>(parser.parse_template()));
    } catch (const TemplateError& error) {
        return invalid_input(fmt::format("template {}", error.what()));
    }
}

Result<Text> Template::render(Heap& heap, const Dict& context, const RenderOptions& options) const {
    Evaluator evaluator(heap, context, options);
    try {
        return evaluator.run(*body_);
    } catch (const Refusal& refusal) {
        return invalid_input(
            fmt::format("the model's template refuses the conversation: {}", refusal.what()));
    } catch (const TemplateError& error) {
        return invalid_input(fmt::format("template line {}: {}", evaluator.line(), error.what()));
    }
}

}  // namespace troupe::model::jinja
