// Fitting a conversation into the context. Tokens are bytes and a message is "role=content;", so
// every number below can be counted by hand.
#include "gateway/wire_prompt.hpp"

#include <catch2/catch.hpp>

#include "tests/gateway/test_wire_support.hpp"

using namespace troupe;
using namespace troupe::gateway;
using troupe::test::ServedFixture;
using Messages = std::vector<model::ChatMessage>;

namespace {

struct Fixture : ServedFixture {
    explicit Fixture(std::uint32_t context_length) { served.context_length = context_length; }

    [[nodiscard]] WireResult<FittedPrompt> fit(const Messages& messages,
                                               std::int32_t answer_tokens = 1,
                                               bool drop = true) const {
        return make_prompt(messages, {.drop_old_turns = drop, .answer_tokens = answer_tokens},
                           served);
    }
    // "text|dropped messages", or the error's message.
    [[nodiscard]] std::string told(const Messages& messages, std::int32_t answer_tokens = 1) const {
        const auto fitted = fit(messages, answer_tokens);
        if (!fitted) return fitted.error().message;
        std::string text;
        for (const auto token : fitted->tokens)
            text += static_cast<char>(token);
        return text + "|" + std::to_string(fitted->dropped_messages);
    }
};

// Turns of 7 + 12 = 19 tokens: "user=n;" "assistant=N;".
Messages conversation(int turns) {
    Messages messages{{.role = "system", .content = "s"}};  // 9 tokens
    for (int i = 0; i < turns; ++i) {
        messages.push_back({.role = "user", .content = std::string(1, static_cast<char>('a' + i))});
        messages.push_back(
            {.role = "assistant", .content = std::string(1, static_cast<char>('A' + i))});
    }
    messages.push_back({.role = "user", .content = "?"});
    return messages;
}

}  // namespace

TEST_CASE("A conversation that fits is left whole", "[gateway][prompt]") {
    const Messages messages = conversation(2);  // 9 + 2 * 19 + 7 = 54
    CHECK(Fixture(55).told(messages) == "system=s;user=a;assistant=A;user=b;assistant=B;user=?;|0");
}

TEST_CASE("The oldest turns go first, and no more than must", "[gateway][prompt]") {
    const Messages messages = conversation(2);
    CHECK(Fixture(54).told(messages) == "system=s;user=b;assistant=B;user=?;|2");
    CHECK(Fixture(36).told(messages) == "system=s;user=b;assistant=B;user=?;|2");
    CHECK(Fixture(35).told(messages) == "system=s;user=?;|4");
    for (int turns = 1; turns < 20; ++turns) {
        for (std::uint32_t context = 17; context < 17 + 20 * 19; context += 5) {
            const auto fitted = Fixture(context).fit(conversation(turns));
            REQUIRE(fitted.has_value());
            const auto whole = static_cast<std::uint32_t>(16 + turns * 19);
            const std::uint32_t over = whole < context ? 0 : whole - (context - 1);
            CHECK(fitted->dropped_messages == 2 * ((over + 18) / 19));
        }
    }
}

TEST_CASE("Room is kept for the answer, but for a quarter of the context at most",
          "[gateway][prompt]") {
    const Messages messages = conversation(2);                    // 54
    CHECK(Fixture(64).fit(messages, 10)->dropped_messages == 0);  // 54 + 10
    CHECK(Fixture(64).fit(messages, 11)->dropped_messages == 2);
    CHECK(Fixture(72).fit(messages, 5000)->dropped_messages == 0);  // 54 + 72 / 4
    CHECK(Fixture(70).fit(messages, -1)->dropped_messages == 2);
    CHECK(Fixture(55).fit(messages, 0)->dropped_messages == 0);
}

TEST_CASE("System and developer messages stay wherever they stand", "[gateway][prompt]") {
    const Messages messages{
        {.role = "assistant", .content = "hello"}, {.role = "user", .content = "one"},
        {.role = "developer", .content = "d"},     {.role = "assistant", .content = "two"},
        {.role = "user", .content = "three"},      {.role = "tool", .content = "x"}};
    CHECK(Fixture(40).told(messages) == "developer=d;user=three;tool=x;|3");
}

TEST_CASE("A last turn that is too long by itself is refused with numbers", "[gateway][prompt]") {
    Messages messages = conversation(1);
    messages.back().content = std::string(100, 'x');  // 9 + 106 with the turn left out
    CHECK(Fixture(115).told(messages) ==
          "This model's maximum context length is 115 tokens, prompt and answer together, but the "
          "prompt has 115 with all older turns left out.");
    CHECK(Fixture(116).fit(messages)->dropped_messages == 2);
    CHECK(Fixture(116).fit(messages, 50)->dropped_messages == 2);  // the answer gets what is left
}

TEST_CASE("Nothing is left out unasked", "[gateway][prompt]") {
    const auto refused = Fixture(54).fit(conversation(2), 1, false);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == "context_length_exceeded");
    CHECK(refused.error().message ==
          "This model's maximum context length is 54 tokens, prompt and answer together, but the "
          "prompt has 54.");
}
