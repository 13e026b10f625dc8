// An open file descriptor, closed at the end of its life. -1 where opening failed.
#pragma once

#include <unistd.h>

namespace troupe {

class Descriptor {
 public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    [[nodiscard]] bool is_open() const { return fd_ >= 0; }
    [[nodiscard]] int get() const { return fd_; }

 private:
    const int fd_;
};

}  // namespace troupe
