// troupe tokenize: the tokens of a text, as the model sees them.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "runtime/base/log.hpp"
#include "tools/troupe/command.hpp"
#include "tools/troupe/model_loading.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct TokenizeFlags {
    std::string model;
    std::string text;
    bool control = false;
    bool as_json = false;
};

json::value text_or_null(std::string_view bytes) {
    // A token may hold a part of a character, which JSON cannot say; `bytes` says it.
    for (const char c : bytes)
        if (static_cast<unsigned char>(c) >= 0x80) return nullptr;
    return json::value(bytes);
}

int tokenize(TokenizeFlags flags) {
    if (flags.text == "-") flags.text.assign(std::istreambuf_iterator<char>(std::cin), {});
    const auto loaded = load_model(flags.model);
    if (!loaded) return report(loaded.error());
    const auto& tokenizer = *loaded->tokenizer;
    std::vector<model::TokenId> ids;
    if (flags.control)
        tokenizer.encode_with_control(flags.text, ids);
    else
        tokenizer.encode(flags.text, ids);
    if (!flags.as_json) {
        for (const auto id : ids)
            fmt::print("{:>7}  {}\n", id, log::escaped(tokenizer.bytes_of(id)));
        return exit_ok;
    }
    json::array tokens;
    for (const auto id : ids) {
        json::array bytes;
        for (const char c : tokenizer.bytes_of(id))
            bytes.push_back(static_cast<unsigned char>(c));
        tokens.push_back({{"id", id},
                          {"piece", tokenizer.piece(id)},
                          {"text", text_or_null(tokenizer.bytes_of(id))},
                          {"bytes", std::move(bytes)}});
    }
    const json::object out{{"count", ids.size()}, {"tokens", std::move(tokens)}};
    std::printf("%s\n", json::serialize(out).c_str());
    return exit_ok;
}

}  // namespace

void add_tokenize(Command& app, Run& run) {
    auto command = app.add_subcommand("tokenize", "Show the tokens of a text");
    const auto flags = std::make_shared<TokenizeFlags>();
    command.add("--model,-m", flags->model, "a GGUF file, a pulled model, or toy").required();
    command.add("TEXT,--prompt", flags->text, "the text; - reads standard input").required();
    command.add_switch("--control", flags->control,
                       "let spellings of control tokens be those tokens");
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.when_chosen([flags, &run] { run = [flags] { return tokenize(*flags); }; });
}

}  // namespace troupe::tools
