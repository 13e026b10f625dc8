// Those of an io thread's connections that have got something to write. All that one delivery gives
// to many of them goes out in one handler, which runs behind the one that is at work: first all
// frames are made, then all are sent, one call to the kernel behind the other. Clients on this
// machine then sleep once a delivery, not once a frame; waking them costs as much as all else that
// `send` does. Lives on that io thread.
#pragma once

#include <boost/asio/post.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/lane.hpp"

namespace troupe::gateway {

class FrameWriter {
 public:
    FrameWriter() = default;
    FrameWriter(const FrameWriter&) = delete;
    FrameWriter& operator=(const FrameWriter&) = delete;
    virtual ~FrameWriter() = default;
    // Appends what is to go out now. send_frames() follows in the same round, with just that.
    virtual void make_frames(std::string& frames) = 0;
    virtual void send_frames(std::string_view frames) = 0;
};

class WriteRound {
 public:
    explicit WriteRound(runtime::Lane& io) : io_(io) {}

    void add(std::shared_ptr<FrameWriter> writer) {
        if (waiting_.empty()) boost::asio::post(io_.executor(), [this] { run(); });
        waiting_.push_back(std::move(writer));
    }

    // To make what one connection writes in, outside of a round; until the next asks.
    [[nodiscard]] std::string& empty_buffer() {
        clear(buffer_);
        return buffer_;
    }

 private:
    static constexpr std::size_t kTogetherBytes = 64 << 10;

    static void clear(std::string& buffer) {
        if (buffer.capacity() > 2 * kTogetherBytes) std::string().swap(buffer);
        buffer.clear();
    }

    void run() {
        running_.swap(waiting_);
        for (auto first = running_.begin(); first != running_.end();)
            first = write_some(first);
        running_.clear();
    }

    using Writers = std::vector<std::shared_ptr<FrameWriter>>;

    Writers::iterator write_some(Writers::iterator first) {
        clear(together_);
        ends_.clear();
        auto last = first;
        for (; last != running_.end() && together_.size() < kTogetherBytes; ++last) {
            (*last)->make_frames(together_);
            ends_.push_back(together_.size());
        }
        std::size_t begin = 0;
        for (const std::size_t end : ends_) {
            (*first++)->send_frames(std::string_view(together_).substr(begin, end - begin));
            begin = end;
        }
        return last;
    }

    runtime::Lane& io_;
    Writers waiting_;
    Writers running_;
    std::string together_;           // the frames of a round
    std::vector<std::size_t> ends_;  // of each writer's
    std::string buffer_;
};

}  // namespace troupe::gateway
