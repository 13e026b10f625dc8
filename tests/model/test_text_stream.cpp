#include <catch2/catch.hpp>
#include <random>

#include "model/text_stream.hpp"
#include "tests/model/test_tokenizer_support.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using model::PartialTail;
using model::StopHit;
using model::TextStream;
using model::TokenId;

namespace {

// Token n stands for the n-th of the given strings of bytes; an empty one is a control token.
class TableTokenizer final : public model::Tokenizer {
 public:
    explicit TableTokenizer(std::vector<std::string> table) : table_(std::move(table)) {}

    void encode(std::string_view, std::vector<TokenId>&) const override {}
    std::optional<model::ControlMatch> next_control(std::string_view, std::size_t) const override {
        return std::nullopt;
    }
    std::string_view piece(TokenId id) const override { return bytes_of(id); }
    std::string_view bytes_of(TokenId id) const override {
        return table_[static_cast<std::size_t>(id)];
    }
    bool is_control(TokenId id) const override { return bytes_of(id).empty(); }
    TokenId vocabulary_size() const override { return static_cast<TokenId>(table_.size()); }
    std::optional<TokenId> find(std::string_view) const override { return std::nullopt; }
    std::optional<TokenId> bos() const override { return std::nullopt; }
    std::optional<TokenId> eos() const override { return std::nullopt; }
    std::span<const TokenId> end_tokens() const override { return {}; }
    bool add_bos() const override { return false; }

    std::vector<TokenId> all() const {
        std::vector<TokenId> ids;
        for (TokenId id = 0; id < vocabulary_size(); ++id)
            ids.push_back(id);
        return ids;
    }

 private:
    std::vector<std::string> table_;
};

struct Outcome {
    std::vector<std::string> shown;  // after each token, then at the end
    std::optional<StopHit> stop;

    std::string whole() const {
        std::string text;
        for (const std::string& part : shown)
            text += part;
        return text;
    }
};

// Feeds every token of the table on its own.
Outcome run(const std::vector<std::string>& table, TextStream::Options options) {
    const TableTokenizer tokenizer(table);
    Result<TextStream> stream = TextStream::make(tokenizer, std::move(options));
    REQUIRE(stream.has_value());
    Outcome outcome;
    for (const TokenId id : tokenizer.all()) {
        outcome.shown.emplace_back();
        stream->feed(std::span(&id, 1), outcome.shown.back());
    }
    outcome.shown.emplace_back();
    stream->finish(outcome.shown.back());
    outcome.stop = stream->stop();
    return outcome;
}

using Shown = std::vector<std::string>;

}  // namespace

TEST_CASE("streamed text equals the reference after every token", "[model][text_stream]") {
    if (!test::have_shared("7-smollm2/decode-cases.json")) return;
    const std::filesystem::path path = test::default_model();
    if (path.empty()) return;
    const auto tokenizer = test::open_tokenizer(path);
    const auto file = test::read_json(test::shared_data("7-smollm2/decode-cases.json"));
    const auto& cases = file.at("cases").as_array();
    REQUIRE(cases.size() == 121);
    for (const auto& value : cases) {
        const auto& one = value.as_object();
        const std::vector<TokenId> ids = test::ids_of(one.at("ids"));
        CAPTURE(ids);
        Result<TextStream> stream = TextStream::make(*tokenizer, {});
        REQUIRE(stream.has_value());
        Shown shown;
        for (const TokenId id : ids) {
            shown.emplace_back();
            stream->feed(std::span(&id, 1), shown.back());
        }
        std::string flushed;
        stream->finish(flushed, PartialTail::replace);
        std::string whole = flushed;
        for (auto part = shown.rbegin(); part != shown.rend(); ++part)
            whole = *part + whole;

        const auto* without_control = one.if_contains("text_skip_special");
        CHECK(whole == (without_control ? *without_control : one.at("text")).as_string());
        if (without_control) continue;  // the reference streams the spelling of control tokens
        CHECK(shown == boost::json::value_to<Shown>(one.at("stream")));
        CHECK(flushed == one.at("flush").as_string());
    }
}

TEST_CASE("a code point is shown when its last byte comes", "[model][text_stream]") {
    CHECK(run({"a\xF0\x9F", "\x98", "",
               "\x80"
               "b"},
              {})
              .shown == Shown{"a", "", "",
                              "\xF0\x9F\x98\x80"
                              "b",
                              ""});
}

TEST_CASE("a code point that the answer ends inside is dropped", "[model][text_stream]") {
    CHECK(run({"Hi \xF0\x9F\x98"}, {}).whole() == "Hi ");
}

TEST_CASE("only a proper prefix of a stop string is held back", "[model][text_stream]") {
    const Outcome outcome = run({"ABC", "DEF", "G", "HI", "JK"}, {{"DEFGHIJ"}, false});
    CHECK(outcome.shown == Shown{"ABC", "", "", "", "", ""});
    CHECK(outcome.stop == StopHit{0, 5});
    CHECK(run({"a\n", "\nUs", "x"}, {{"\n\nUser:"}, false}).shown == Shown{"a", "", "\n\nUsx", ""});
}

TEST_CASE("held text is shown when the answer ends otherwise", "[model][text_stream]") {
    const Outcome outcome = run({"bye\n\nUs", ""}, {{"\n\nUser:"}, false});
    CHECK(outcome.shown == Shown{"bye", "", "\n\nUs"});
    CHECK_FALSE(outcome.stop.has_value());
}

TEST_CASE("the stop string that completes first wins", "[model][text_stream]") {
    for (const std::vector<std::string>& stops :
         {std::vector<std::string>{"a", "is"}, std::vector<std::string>{"is", "a"}}) {
        const Outcome outcome = run({" The user", " is a"}, {stops, false});
        CHECK(outcome.whole() == " The user ");
        CHECK(stops[outcome.stop->index] == "is");
        CHECK(outcome.stop->tokens_count == 2);
    }
    // Two that complete at the same byte: the longer one, in any order.
    CHECK(run({"xab"}, {{"b", "ab"}, false}).stop == StopHit{1, 1});
    CHECK(run({"xab"}, {{"ab", "b"}, false}).stop == StopHit{0, 1});
}

TEST_CASE("a stop string may overlap its own beginning", "[model][text_stream]") {
    const Outcome outcome = run({"aab", "aabaab", "c!"}, {{"aabaabc"}, false});
    CHECK(outcome.whole() == "aab");
    CHECK(outcome.stop == StopHit{0, 3});
}

TEST_CASE("the stop string stays where the request wants it", "[model][text_stream]") {
    CHECK(run({"one S", "TOP two"}, {{"STOP"}, true}).whole() == "one STOP");
    CHECK(run({"one S", "TOP two"}, {{"STOP"}, false}).whole() == "one ");
}

TEST_CASE("tokens after a stop string are not looked at", "[model][text_stream]") {
    const TableTokenizer tokenizer({"a", "STOP", "b"});
    Result<TextStream> stream = TextStream::make(tokenizer, {{"STOP"}, false});
    std::string text;
    stream->feed(tokenizer.all(), text);
    stream->finish(text);
    CHECK(text == "a");
    CHECK(stream->tokens_count() == 2);
}

TEST_CASE("an empty stop string is an error", "[model][text_stream]") {
    const TableTokenizer tokenizer({"a"});
    const Result<TextStream> stream = TextStream::make(tokenizer, {{"x", ""}, false});
    REQUIRE(stream.has_error());
    CHECK(stream.error().kind == ErrorKind::invalid_input);
}

TEST_CASE("any split of the ids into calls gives the same text", "[model][text_stream]") {
    std::mt19937 random(20240601);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::vector<std::string> bytes = {"a",    "b",        "ab",   "",
                                            "\xF0", "\x9F\x98", "\x80", "\xE2\x82"};
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::string> table;
        for (std::size_t i = 0; i < 12; ++i)
            table.push_back(bytes[below(bytes.size())]);
        TextStream::Options options;
        for (std::size_t i = below(3); i > 0; --i) {
            std::string stop = bytes[below(3)];
            for (std::size_t j = below(3); j > 0; --j)
                stop += bytes[below(3)];
            options.stops.push_back(stop);
        }
        options.include_stop = below(2) == 0;

        const TableTokenizer tokenizer(table);
        const std::vector<TokenId> ids = tokenizer.all();
        const Outcome one_by_one = run(table, options);
        Result<TextStream> stream = TextStream::make(tokenizer, options);
        std::string text;
        for (std::size_t done = 0; done < ids.size();) {
            const std::size_t count = std::min(ids.size() - done, 1 + below(5));
            stream->feed(std::span(ids).subspan(done, count), text);
            done += count;
        }
        stream->finish(text);
        CHECK(text == one_by_one.whole());
        CHECK(stream->stop() == one_by_one.stop);
    }
}
