// Any bytes as a chat template, rendered with a small conversation: refused or rendered in bounds.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/chat_template.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace troupe::model;
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    const auto compiled = ChatTemplate::compile(source, "<s>", "</s>");
    if (!compiled) return 0;
    const std::array messages{ChatMessage{.role = "system", .content = "Be brief."},
                              ChatMessage{.role = "user", .content = "<s>Hello {{ x }}"}};
    (void)compiled->render(messages);
    return 0;
}
