// Those of an io thread's connections that have got something to write. All that one delivery gives
// to many of them goes out in one handler, which runs behind the one that is at work. Lives on that
// io thread.
#pragma once

#include <boost/asio/post.hpp>
#include <memory>
#include <string>
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
    virtual void write_frames() = 0;
};

class WriteRound {
 public:
    explicit WriteRound(runtime::Lane& io) : io_(io) {}

    void add(std::shared_ptr<FrameWriter> writer) {
        if (waiting_.empty()) boost::asio::post(io_.executor(), [this] { run(); });
        waiting_.push_back(std::move(writer));
    }

    // To make what one connection writes in; until the next asks.
    [[nodiscard]] std::string& empty_buffer() {
        constexpr std::size_t kKeptBytes = 64 << 10;
        if (buffer_.capacity() > kKeptBytes) std::string().swap(buffer_);
        buffer_.clear();
        return buffer_;
    }

 private:
    void run() {
        running_.swap(waiting_);
        for (const auto& writer : running_)
            writer->write_frames();
        running_.clear();
    }

    runtime::Lane& io_;
    std::vector<std::shared_ptr<FrameWriter>> waiting_;
    std::vector<std::shared_ptr<FrameWriter>> running_;
    std::string buffer_;
};

}  // namespace troupe::gateway
