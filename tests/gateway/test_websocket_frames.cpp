// Frames without a socket. A client's bytes are given whole, and cut in every way: that must make
// no difference. RFC 6455's sections stand beside what they rule.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/websocket_frames.hpp"
#include "tests/gateway/websocket_client.hpp"

namespace troupe {
namespace {

using namespace gateway;
using namespace test;

constexpr std::size_t kMessageMax = 100'000;

// An event that owns what it says.
struct Heard {
    std::string kind;
    std::string payload;
    std::uint16_t code = 0;
    friend bool operator==(const Heard&, const Heard&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Heard& heard) {
        return out << heard.kind << " " << heard.code << " \"" << heard.payload.substr(0, 60)
                   << '"';
    }
};
using AllHeard = std::vector<Heard>;

Heard heard(const FrameEvent& event) {
    struct Name {
        Heard operator()(const ClientMessage& m) {
            return {m.is_text ? "text" : "binary", std::string(m.payload)};
        }
        Heard operator()(const ClientPing& p) { return {"ping", std::string(p.payload)}; }
        Heard operator()(const ClientPong&) { return {"pong", ""}; }
        Heard operator()(const ClientClose& c) { return {"close", "", c.code.value_or(0)}; }
        Heard operator()(const FrameFault& f) { return {"fault", "", f.code}; }
    };
    return std::visit(Name{}, event);
}
bool is_last(const Heard& event) {
    return event.kind == "close" || event.kind == "fault";
}

// Reads `bytes`, given in pieces that end at `cuts`.
AllHeard read_in_pieces(const std::string& bytes, std::vector<std::size_t> cuts) {
    FrameReader reader(kMessageMax);
    AllHeard all;
    cuts.push_back(bytes.size());
    std::size_t begin = 0;
    for (const std::size_t end : cuts) {
        std::string piece = bytes.substr(begin, end - begin);
        begin = end;
        std::span<char> left(piece);
        for (auto event = reader.next(left); event; event = reader.next(left)) {
            all.push_back(heard(*event));
            if (is_last(all.back())) return all;
        }
        REQUIRE(left.empty());
    }
    return all;
}

// However the bytes come: all at once, one by one, in two at any place, or in pieces by chance.
AllHeard read(const std::string& bytes) {
    const AllHeard whole = read_in_pieces(bytes, {});
    std::vector<std::size_t> each;
    for (std::size_t i = 1; i < bytes.size() && bytes.size() < 2000; ++i) {
        each.push_back(i);
        CHECK(read_in_pieces(bytes, {i}) == whole);
    }
    CHECK(read_in_pieces(bytes, each) == whole);
    std::mt19937 random(1);
    for (int round = 0; round < 20; ++round) {
        std::vector<std::size_t> cuts;
        for (std::size_t at = random() % 9; at < bytes.size(); at += 1 + random() % 2000)
            cuts.push_back(at);
        CHECK(read_in_pieces(bytes, cuts) == whole);
    }
    return whole;
}

Heard text(std::string payload) {
    return {"text", std::move(payload)};
}
Heard fault(std::uint16_t code) {
    return {"fault", "", code};
}

TEST_CASE("A message is read in every form of length", "[gateway][websocket]") {
    for (const std::size_t size : {0U, 1U, 125U, 126U, 127U, 65535U, 65536U, 65537U}) {
        const std::string message(size, 'x');
        CHECK(read(client_frame(Opcode::text, message)) == AllHeard{text(message)});
        CHECK(read(client_frame(Opcode::binary, message)) == AllHeard{{"binary", message}});
    }
}

TEST_CASE("A message may come in fragments, with control frames between them (5.4)",
          "[gateway][websocket]") {
    const std::string long_ping(125, 'p');
    const std::string bytes = client_frame(Opcode::text, "Gr\xC3", {.final = false}) +
                              client_frame(Opcode::ping, long_ping) +
                              client_frame(Opcode::continuation, "", {.final = false}) +
                              client_frame(Opcode::pong, "unasked") +
                              client_frame(Opcode::continuation, "\xBC\xC3\x9F", {.final = false}) +
                              client_frame(Opcode::ping, "") +
                              client_frame(Opcode::continuation, "e") +
                              client_frame(Opcode::text, "next");
    CHECK(read(bytes) == AllHeard{{"ping", long_ping},
                                  {"pong", ""},
                                  {"ping", ""},
                                  text("Gr\xC3\xBC\xC3\x9F"
                                       "e"),
                                  text("next")});
}

TEST_CASE("Nothing is held between messages", "[gateway][websocket]") {
    FrameReader reader(kMessageMax);
    CHECK(reader.at_rest());
    std::string first = client_frame(Opcode::text, "a", {.final = false});
    std::span<char> left(first);
    CHECK_FALSE(reader.next(left));
    CHECK_FALSE(reader.at_rest());
    std::string pong = client_frame(Opcode::pong, "");
    left = pong;
    CHECK(reader.next(left));
    CHECK_FALSE(reader.at_rest());
    std::string last = client_frame(Opcode::continuation, "b");
    left = last;
    CHECK(heard(*reader.next(left)) == text("ab"));
    CHECK(reader.at_rest());
}

TEST_CASE("A frame that breaks the protocol is a fault, 1002", "[gateway][websocket]") {
    const auto faulty = [](const std::string& bytes) {
        const auto all = read(bytes);
        return all == AllHeard{fault(1002)};
    };
    CHECK(faulty(client_frame(Opcode::text, "{}", {.masked = false})));
    for (const std::uint8_t bits : {1, 2, 4})
        CHECK(faulty(client_frame(Opcode::text, "{}", {.reserved = bits})));
    for (const std::uint8_t opcode : {3, 4, 5, 6, 7, 11, 12, 13, 14, 15})
        CHECK(faulty(client_frame(static_cast<Opcode>(opcode), "x")));
    for (const Opcode opcode : {Opcode::ping, Opcode::pong, Opcode::close}) {
        CHECK(faulty(client_frame(opcode, std::string(126, 'x'))));
        CHECK(faulty(client_frame(opcode, "xx", {.final = false})));
    }
    CHECK(faulty(client_frame(Opcode::continuation, "x")));
    CHECK(faulty(client_frame(Opcode::text, "a", {.final = false}) +
                 client_frame(Opcode::text, "b")));
    CHECK(faulty(client_frame(Opcode::text, "abcd", {.length_bytes = 2})));
    CHECK(faulty(client_frame(Opcode::text, std::string(300, 'x'), {.length_bytes = 8})));
}

TEST_CASE("Text that is not UTF-8 is a fault, 1007, as soon as it can become none (8.1)",
          "[gateway][websocket]") {
    for (const std::string_view bad : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                       "\xe2\x82", "abc\x80", "\xf0\x9f\x98"}) {
        CHECK(read(client_frame(Opcode::text, bad)) == AllHeard{fault(1007)});
        CHECK(read(client_frame(Opcode::binary, bad)) == AllHeard{{"binary", std::string(bad)}});
    }
    CHECK(read(client_frame(Opcode::text, "a\xff", {.final = false})) == AllHeard{fault(1007)});
    CHECK(read(client_frame(Opcode::text, "\xe2", {.final = false}) +
               client_frame(Opcode::continuation, "\x82", {.final = false}) +
               client_frame(Opcode::continuation, "x")) == AllHeard{fault(1007)});
}

TEST_CASE("A message that is too long is a fault, 1009, before it comes", "[gateway][websocket]") {
    const std::string most(kMessageMax, 'x');
    CHECK(read(client_frame(Opcode::text, most)) == AllHeard{text(most)});
    CHECK(read(client_frame(Opcode::text, most + "x").substr(0, 14)) == AllHeard{fault(1009)});
    CHECK(read(client_frame(Opcode::text, most, {.final = false}) +
               client_frame(Opcode::continuation, "x").substr(0, 6)) == AllHeard{fault(1009)});
    CHECK(read(client_frame(Opcode::text, most, {.final = false}) +
               client_frame(Opcode::ping, "x") + client_frame(Opcode::continuation, "")) ==
          AllHeard{{"ping", "x"}, text(most)});
    CHECK(read("\x81\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF....") == AllHeard{fault(1009)});
}

TEST_CASE("A close frame has no code, or one that may be sent (7.4)", "[gateway][websocket]") {
    const auto closing = [](std::string_view payload) {
        const auto all = read(client_frame(Opcode::close, payload) + "what follows");
        REQUIRE(all.size() == 1);
        return all[0];
    };
    const auto with_code = [&](unsigned code) {
        return closing(std::string{static_cast<char>(code >> 8U), static_cast<char>(code & 0xFFU)});
    };
    CHECK(closing("") == Heard{"close", "", 0});
    CHECK(closing("\x03") == fault(1002));
    CHECK(closing("\x03\xE8n\xC3\xA4her") == Heard{"close", "", 1000});
    CHECK(closing("\x03\xE8\xFF") == fault(1007));
    for (const std::uint16_t code : {1000, 1003, 1007, 1013, 3000, 4999})
        CHECK(with_code(code) == Heard{"close", "", code});
    for (const unsigned code : {0, 999, 1004, 1005, 1006, 1014, 1015, 1016, 2999, 5000, 65535})
        CHECK(with_code(code) == fault(1002));
}

TEST_CASE("A server's frames are whole and not masked", "[gateway][websocket]") {
    const auto head = [](std::size_t bytes) {
        std::string out;
        append_frame_head(out, Opcode::text, bytes);
        return out;
    };
    using namespace std::string_literals;
    CHECK(head(0) == "\x81\x00"s);
    CHECK(head(125) == "\x81\x7D"s);
    CHECK(head(126) == "\x81\x7E\x00\x7E"s);
    CHECK(head(65535) == "\x81\x7E\xFF\xFF"s);
    CHECK(head(65536) == "\x81\x7F\x00\x00\x00\x00\x00\x01\x00\x00"s);
    std::string out = "before";
    out += "payload";
    frame_as_text(out, 6);
    CHECK(out == "before\x81\x07payload");
    out.clear();
    append_close(out, 4401, "no");
    append_close(out, std::nullopt, "");
    CHECK(out == "\x88\x04\x11\x31no\x88\x00"s);
}

TEST_CASE("The answer to a handshake's key is that of RFC 6455, 1.3", "[gateway][websocket]") {
    CHECK(websocket_accept("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

}  // namespace
}  // namespace troupe
