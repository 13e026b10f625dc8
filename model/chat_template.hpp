// A model's chat template: turns a conversation into the text, and then the ids, of a prompt.
// Knows which bytes of the text the template wrote and which the users, so that only the template
// can write control tokens. Immutable: one object serves any number of threads.
#pragma once

#include <cstddef>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat_message.hpp"
#include "model/chat_template_support.hpp"
#include "model/jinja.hpp"
#include "model/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

struct ChatRenderOptions {
    bool add_generation_prompt = true;
    std::string tools_json = {};  // a JSON array of function tools; empty: none
    // More variables of the template ("enable_thinking"), a JSON object; empty: none. They count
    // as written by a user.
    std::string variables_json = {};
    std::tm now = {};  // what a template that writes the date takes for now
};

// text[begin, end) was written by `origin`. Segments follow each other and cover the text; two
// neighbours differ in origin.
struct ChatSegment {
    std::size_t begin = 0;
    std::size_t end = 0;
    jinja::Origin origin = jinja::Origin::from_template;

    friend bool operator==(const ChatSegment&, const ChatSegment&) = default;
};

struct RenderedChat {
    std::string text;
    std::vector<ChatSegment> segments;
    bool system_in_user = false;  // the template has no system role: users told its text
};

class ChatTemplate {
 public:
    // `bos` and `eos` are the pieces of those tokens (empty: none), which templates may write.
    // Errors: invalid_input with the line, where the source is no template.
    [[nodiscard]] static Result<ChatTemplate> compile(std::string_view source, std::string bos,
                                                      std::string eos);

    // System messages are told by users where the template has no system role.
    // Errors: invalid_input for a role that is not known, JSON that is none, a conversation that
    // the template refuses (with its own words), and limits that a rendering reaches; unsupported
    // for tools, calls and results of tools that the template would leave out.
    [[nodiscard]] Result<RenderedChat> render(std::span<const ChatMessage> messages,
                                              const ChatRenderOptions& options = {}) const;

    [[nodiscard]] const std::string& source() const { return source_; }
    [[nodiscard]] const ChatTemplateSupport& support() const { return support_; }

 private:
    ChatTemplate(std::string source, jinja::Template compiled, std::string bos, std::string eos)
        : source_(std::move(source)),
          compiled_(std::move(compiled)),
          bos_(std::move(bos)),
          eos_(std::move(eos)) {}

    [[nodiscard]] Result<RenderedChat> render_as_is(std::span<const ChatMessage> messages,
                                                    const ChatRenderOptions& options,
                                                    const jinja::RenderLimits& limits) const;
    [[nodiscard]] Result<> check_tools(std::span<const ChatMessage> messages,
                                       const ChatRenderOptions& options) const;
    [[nodiscard]] Result<jinja::Dict> make_context(jinja::Heap& heap,
                                                   std::span<const ChatMessage> messages,
                                                   const ChatRenderOptions& options) const;

    std::string source_;
    jinja::Template compiled_;
    std::string bos_;
    std::string eos_;
    ChatTemplateSupport support_;
};

// Whether messages may have this role: one of a few words, none of which spells anything else.
[[nodiscard]] bool is_chat_role(std::string_view role);

// Appends the prompt's ids. Control tokens are recognised only inside template-written segments;
// the text between two of them is encoded in one piece. Where the tokenizer wants BOS and the
// template has not written one, it comes first.
void encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat, std::vector<TokenId>& out);

}  // namespace troupe::model
