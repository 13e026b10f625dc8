#include "tools/troupe/prompt_tokens.hpp"

namespace troupe::tools {

Result<std::vector<model::TokenId>> prompt_tokens(const LoadedModel& loaded,
                                                  std::string_view prompt, bool chat) {
    const model::Tokenizer& tokenizer = *loaded.tokenizer;
    std::vector<model::TokenId> tokens;
    if (chat) {
        model::ChatMessage message;
        message.role = "user";
        message.content = prompt;
        const auto rendered = loaded.chat_template->render({&message, 1});
        if (!rendered) return rendered.error();
        model::encode_chat(tokenizer, *rendered, tokens);
    } else {
        if (tokenizer.add_bos() && tokenizer.bos()) tokens.push_back(*tokenizer.bos());
        tokenizer.encode(prompt, tokens);
    }
    if (tokens.empty()) return invalid_input("the prompt holds no tokens; give --prompt TEXT");
    return tokens;
}

}  // namespace troupe::tools
