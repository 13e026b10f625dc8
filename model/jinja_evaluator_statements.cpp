#include <fmt/format.h>

#include "model/jinja_evaluator.hpp"

namespace troupe::model::jinja {

namespace {

template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

// A new frame inside `parent` until the end of the block.
class Evaluator::Scope {
 public:
    Scope(Evaluator& evaluator, const Frame* parent)
        : evaluator_(evaluator), outer_(evaluator.frame_) {
        evaluator_.heap_.charge(sizeof(Frame));
        evaluator_.frame_ = &evaluator_.frames_.emplace_back(Frame{parent, {}});
    }
    ~Scope() { evaluator_.frame_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

 private:
    Evaluator& evaluator_;
    Frame* outer_;
};

void Frame::set(std::string_view name, const Value& value) {
    for (auto& [known, old] : variables) {
        if (known == name) {
            old = value;
            return;
        }
    }
    variables.emplace_back(name, value);
}

const Value* Frame::find(std::string_view name) const {
    for (const Frame* frame = this; frame != nullptr; frame = frame->parent) {
        for (const auto& [known, value] : frame->variables) {
            if (known == name) return &value;
        }
    }
    return nullptr;
}

Evaluator::Evaluator(Heap& heap, const Dict& context, const RenderOptions& options)
    : heap_(heap), context_(context), options_(options) {}

void Evaluator::spend(std::size_t steps) {
    steps_ += steps;
    if (steps_ > options_.limits.steps) {
        throw TemplateError(fmt::format("it takes more than {} steps", options_.limits.steps));
    }
}

Text Evaluator::run(const Block& body) {
    Text out;
    out_ = &out;
    const Scope scope(*this, nullptr);
    execute(body);
    return out;
}

void Evaluator::write(const Text& text) {
    written_bytes_ += text.size();
    if (written_bytes_ > options_.limits.output_bytes) {
        throw TemplateError(
            fmt::format("it writes more than {} bytes", options_.limits.output_bytes));
    }
    out_->append(text);
}

Evaluator::Flow Evaluator::capture(const Block& body, Text& text) {
    Text* const outer = std::exchange(out_, &text);
    const Flow flow = execute(body);  // an error ends the whole rendering: nothing is put back then
    out_ = outer;
    heap_.charge(2 * text.size());
    return flow;
}

Evaluator::Flow Evaluator::execute(const Block& body) {
    for (const Statement& statement : body) {
        if (const Flow flow = execute(statement); flow != Flow::next) return flow;
    }
    return Flow::next;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
    const Depth depth(*this);
    spend(1);
    line_ = statement.line;
    const auto visit = Overloaded{
        [&](const TextStatement& text) { return write(text.text), Flow::next; },
        [&](const PrintStatement& print) {
            return write(to_text(evaluate(*print.value))), Flow::next;
        },
        [&](const IfStatement& branches) { return execute_if(branches); },
        [&](const ForStatement& loop) { return execute_for(loop), Flow::next; },
        [&](const SetStatement& set) { return execute_set(set); },
        [&](const MacroStatement& macro) {
            frame_->set(macro.name, make_macro(macro));
            return Flow::next;
        },
        [&](const CallStatement& call) {
            const Callable* caller = make_macro(call.caller);
            return write(to_text(evaluate_call(*call.call, caller))), Flow::next;
        },
        [&](const FilterStatement& filter) {
            const Scope scope(*this, frame_);
            Text text;
            const Flow flow = capture(filter.body, text);
            if (flow != Flow::next) return flow;  // and the text is lost, as in Jinja2
            const Value input = heap_.text(std::move(text));
            return write(to_text(evaluate_filter(*filter.filter, input))), Flow::next;
        },
        [&](const WithStatement& with) { return execute_with(with); },
        [](const BreakStatement&) { return Flow::break_loop; },
        [](const ContinueStatement&) { return Flow::continue_loop; },
    };
    return std::visit(visit, statement.what);
}

Evaluator::Flow Evaluator::execute_if(const IfStatement& statement) {
    for (const IfStatement::Branch& branch : statement.branches) {
        if (!branch.condition || truthy(evaluate(*branch.condition))) return execute(branch.body);
    }
    return Flow::next;
}

Evaluator::Flow Evaluator::execute_with(const WithStatement& statement) {
    std::vector<Value> values;
    for (const auto& [name, value] : statement.variables)
        values.push_back(evaluate(*value));
    const Scope scope(*this, frame_);
    for (std::size_t i = 0; i < values.size(); ++i) {
        frame_->set(statement.variables[i].first, values[i]);
    }
    return execute(statement.body);
}

void Evaluator::execute_for(const ForStatement& statement) {
    loop_over(statement, evaluate(*statement.items), 0);
}

void Evaluator::loop_over(const ForStatement& statement, const Value& items, std::size_t depth0) {
    const Depth depth(*this);
    const Frame* const outside = frame_;
    std::vector<Value> visited;
    for (const Value& value : iterate(items)) {
        if (statement.filter) {
            const Scope scope(*this, outside);
            assign(statement.targets, statement.unpacks, value);
            if (!truthy(evaluate(*statement.filter))) continue;
        }
        visited.push_back(value);
    }
    if (visited.empty()) {
        const Scope scope(*this, outside);
        execute(statement.otherwise);
        return;
    }

    const Callable* recurse = nullptr;
    if (statement.recursive) {
        recurse = heap_.make(Callable{
            "loop", [this, &statement, outside, depth0](Evaluator&, const Arguments& arguments) {
                const Scope scope(*this, outside);
                Text text;
                Text* const outer = std::exchange(out_, &text);
                loop_over(statement, required(arguments, 0, "items"), depth0 + 1);
                out_ = outer;
                return heap_.text(std::move(text));
            }});
    }
    auto* const kept = heap_.make(std::move(visited));
    auto* const changed = heap_.make(std::vector<Value>());
    Loop* const loop = heap_.make(Loop{kept, 0, depth0, recurse, changed});
    for (; loop->index0 < kept->size(); ++loop->index0) {
        const Scope scope(*this, outside);
        frame_->set("loop", static_cast<const Loop*>(loop));
        assign(statement.targets, statement.unpacks, (*kept)[loop->index0]);
        if (execute(statement.body) == Flow::break_loop) break;
    }
}

void Evaluator::assign(const std::vector<std::string>& targets, bool unpacks, const Value& value) {
    if (!unpacks) {
        frame_->set(targets[0], value);
        return;
    }
    const std::vector<Value> parts = iterate(value);
    if (parts.size() != targets.size()) {
        throw TemplateError(
            fmt::format("{} values for {} variables", parts.size(), targets.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
        frame_->set(targets[i], parts[i]);
}

Evaluator::Flow Evaluator::execute_set(const SetStatement& statement) {
    Value value;
    if (statement.value) {
        value = evaluate(*statement.value);
    } else {
        const Scope scope(*this, frame_);
        Text text;
        if (const Flow flow = capture(statement.body, text); flow != Flow::next) return flow;
        value = heap_.text(std::move(text));
        if (statement.filter) value = evaluate_filter(*statement.filter, value);
    }
    if (statement.attribute.empty()) {
        assign(statement.targets, statement.unpacks, value);
        return Flow::next;
    }
    const Value target = evaluate_name(statement.targets[0]);
    const auto* name_space = get<Namespace*>(target);
    if (!name_space) throw TemplateError("only attributes of a namespace can be set");
    for (auto& [name, old] : (*name_space)->attributes) {
        if (name == statement.attribute) {
            old = value;
            return Flow::next;
        }
    }
    heap_.charge(sizeof(Value) + statement.attribute.size());
    (*name_space)->attributes.emplace_back(statement.attribute, value);
    return Flow::next;
}

const Callable* Evaluator::make_macro(const MacroStatement& macro) {
    const Frame* const defined_in = frame_;
    return heap_.make(
        Callable{macro.name, [this, &macro, defined_in](Evaluator&, const Arguments& arguments) {
                     return call_macro(macro, defined_in, arguments);
                 }});
}

Value Evaluator::call_macro(const MacroStatement& macro, const Frame* defined_in,
                            const Arguments& arguments) {
    const Depth depth(*this);
    const Scope scope(*this, defined_in);
    Arguments more;  // what no parameter takes
    for (std::size_t i = macro.parameters.size(); i < arguments.positional.size(); ++i) {
        more.positional.push_back(arguments.positional[i]);
    }
    Dict named;
    for (const auto& [name, value] : arguments.named) {
        if (name == "caller") {
            frame_->set("caller", value);
        } else {
            named.set(heap_.text(name), value);
        }
    }
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
        const MacroStatement::Parameter& parameter = macro.parameters[i];
        if (const Value* given = argument(arguments, i, parameter.name)) {
            frame_->set(parameter.name, *given);
        } else if (parameter.fallback) {
            frame_->set(parameter.name, evaluate(*parameter.fallback));
        } else {
            frame_->set(parameter.name, Undefined{});
        }
    }
    frame_->set("varargs", heap_.list(std::move(more.positional), true));
    frame_->set("kwargs", heap_.dict(std::move(named)));
    Text text;
    capture(macro.body, text);  // no loop is open in there
    return heap_.text(std::move(text));
}

}  // namespace troupe::model::jinja
