// What an io thread's connections write together: everything is made before anything is sent.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gateway/write_round.hpp"
#include "runtime/thread.hpp"

namespace troupe {
namespace {

using gateway::FrameWriter;
using gateway::WriteRound;

struct Story {
    std::vector<std::string> made;
    std::vector<std::string> sent;
    std::vector<std::size_t> made_before_sent;  // how many had been made by each sending
};

class Writer final : public FrameWriter {
 public:
    Writer(Story& story, std::string frames) : story_(story), frames_(std::move(frames)) {}

    void make_frames(std::string& frames) override {
        story_.made.push_back(frames_);
        frames += frames_;
    }
    void send_frames(std::string_view frames) override {
        story_.sent.emplace_back(frames);
        story_.made_before_sent.push_back(story_.made.size());
        if (when_sent) when_sent();
    }

    std::function<void()> when_sent;

 private:
    Story& story_;
    const std::string frames_;
};

struct Rounds {
    std::shared_ptr<Writer> add(std::string frames) {
        auto writer = std::make_shared<Writer>(story, std::move(frames));
        round.add(writer);
        return writer;
    }
    void run() {
        io.context().restart();
        io.context().poll();
    }

    runtime::SteadyClock clock;
    runtime::NamedThread io{"io", clock, [](const runtime::LaneFailure&) {}};
    Story story;
    WriteRound round{io};
};

TEST_CASE("all frames of a round are made before the first is sent, each to its own client") {
    Rounds rounds;
    rounds.add("one");
    rounds.add("");
    rounds.add("three");
    CHECK(rounds.story.made.empty());  // behind the handler that is at work
    rounds.run();
    CHECK(rounds.story.sent == std::vector<std::string>{"one", "", "three"});
    CHECK(rounds.story.made_before_sent == std::vector<std::size_t>{3, 3, 3});
}

TEST_CASE("frames that are too much for one buffer go out in several parts of a round") {
    Rounds rounds;
    const std::string large(40 << 10, 'x');
    for (int i = 0; i < 5; ++i)
        rounds.add(large);
    rounds.run();
    CHECK(rounds.story.sent == std::vector<std::string>(5, large));
    CHECK(rounds.story.made_before_sent == std::vector<std::size_t>{2, 2, 4, 4, 5});
}

TEST_CASE("who asks while a round runs is in the next, and may write by itself meanwhile") {
    Rounds rounds;
    const auto first = rounds.add("first");
    rounds.add("second");
    first->when_sent = [&] {
        rounds.round.empty_buffer() = "of its own";
        rounds.add("third");
    };
    rounds.run();
    CHECK(rounds.story.sent == std::vector<std::string>{"first", "second", "third"});
    CHECK(rounds.story.made_before_sent == std::vector<std::size_t>{2, 2, 3});
}

}  // namespace
}  // namespace troupe
