#include "tests/gpu/emulator/block.hpp"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/base/assert.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace troupe::gpu {
// What gpu/device.cuh declares as the block's dynamic shared memory.
alignas(16) unsigned char shared_bytes[48 * 1024 + 16];
}  // namespace troupe::gpu

namespace troupe::emulator {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr unsigned kWarpLanes = 32;
constexpr std::size_t kSharedBytesMax = 48 * 1024;
constexpr unsigned char kSharedPoison = 0xFF;  // NaNs
constexpr unsigned char kSharedMargin = 0xA5;

// A stack to switch to. AddressSanitizer wants to know of every change.
struct Stack {
    void* bottom = nullptr;
    std::size_t bytes = 0;
};

void leaving([[maybe_unused]] void** fake_stack, [[maybe_unused]] const Stack& to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(fake_stack, to.bottom, to.bytes);
#endif
}
void arrived([[maybe_unused]] void* fake_stack, [[maybe_unused]] Stack* from = nullptr) {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (from != nullptr) *from = {const_cast<void*>(bottom), bytes};
#endif
}

enum class State { ready, at_block_barrier, at_warp_exchange, done };

struct Thread {
    Stack stack;
    fcontext_t context = nullptr;
    void* fake_stack = nullptr;
    State state = State::done;
    WarpOperation operation = WarpOperation::synchronise;
    uint3 index;
    unsigned number = 0;  // in the block
    PendingCopies copies;
};

struct Warp {
    unsigned arrived = 0;
    unsigned phase = 0;  // of the exchange that is being filled; the other is being read
    std::array<std::array<std::uint64_t, kWarpLanes>, 2> values{};
    std::array<void*, kWarpLanes> arguments{};  // of meet()
};

class BlockRunner {
 public:
    std::string run(const cudaLaunchConfig_t& config, const std::function<void()>& body,
                    std::uint64_t random);
    void wait_for_block() { suspend(State::at_block_barrier); }
    const std::array<std::uint64_t, kWarpLanes>& exchange(WarpOperation operation, unsigned mask,
                                                          std::uint64_t value);
    void meet(WarpOperation operation, void* argument, void (*complete)(void* const* arguments));
    [[nodiscard]] PendingCopies& copies() { return current_->copies; }
    [[nodiscard]] std::size_t shared_size() const { return shared_size_; }
    [[nodiscard]] unsigned lane() const { return current_->number % kWarpLanes; }
    [[nodiscard]] bool running() const { return current_ != nullptr; }
    [[noreturn]] void fail(const char* what);

 private:
    static void thread_main(transfer_t from);
    void prepare_threads(dim3 block);
    void run_block(std::uint64_t random);
    bool run_ready_threads(std::uint64_t random);
    void resume(Thread& thread);
    void suspend(State state);
    bool pass_barrier();
    void release_warp(WarpOperation operation);

    std::vector<std::unique_ptr<Thread>> threads_;  // as many as the largest block had
    std::size_t count_ = 0;                         // of this block
    std::vector<Warp> warps_;
    std::size_t shared_size_ = 0;  // of this block, in bytes
    const std::function<void()>* body_ = nullptr;
    Thread* current_ = nullptr;
    fcontext_t scheduler_ = nullptr;  // where the running thread came from
    Stack scheduler_stack_;
    void* scheduler_fake_stack_ = nullptr;
    sigjmp_buf faulted_;
    std::string fault_;
};

BlockRunner& runner() {
    static BlockRunner instance;
    return instance;
}

void on_bad_access(int signal_number, siginfo_t* info, void*) {
    if (runner().running()) {
        std::array<char, 96> text;
        std::snprintf(text.data(), text.size(), "a kernel touched %p, which is not its to touch",
                      info->si_addr);
        runner().fail(text.data());
    }
    // The emulator's own fault: the default action follows when the instruction is tried again.
    std::signal(signal_number, SIG_DFL);
}

void BlockRunner::thread_main(transfer_t from) {
    BlockRunner& self = runner();
    for (;;) {
        self.scheduler_ = from.fctx;
        arrived(self.current_->fake_stack, &self.scheduler_stack_);
        (*self.body_)();
        // The fiber is kept for the next block.
        Thread& me = *self.current_;
        me.state = State::done;
        leaving(&me.fake_stack, self.scheduler_stack_);
        from = jump_fcontext(self.scheduler_, nullptr);
    }
}

void BlockRunner::prepare_threads(dim3 block) {
    count_ = std::size_t{block.x} * block.y * block.z;
    while (threads_.size() < count_) {
        auto thread = std::make_unique<Thread>();
        thread->stack.bytes = kStackBytes;
        thread->stack.bottom = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        TROUPE_ASSERT(thread->stack.bottom != MAP_FAILED);
        threads_.push_back(std::move(thread));
    }
    warps_.assign((count_ + kWarpLanes - 1) / kWarpLanes, {});
    for (unsigned i = 0; i < count_; ++i) {
        Thread& thread = *threads_[i];
        thread.index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
        thread.number = i;
        if (thread.context == nullptr) {
            thread.fake_stack = nullptr;
            // Stacks that all begin at the same offset would share a few lines of the cache.
            const std::size_t bytes = thread.stack.bytes - i * 704 % 65'536;
            thread.context = make_fcontext(static_cast<std::byte*>(thread.stack.bottom) + bytes,
                                           bytes, &BlockRunner::thread_main);
        }
    }
}

void BlockRunner::resume(Thread& thread) {
    current_ = &thread;
    threadIdx = thread.index;
    leaving(&scheduler_fake_stack_, thread.stack);
    const transfer_t back = jump_fcontext(thread.context, nullptr);
    arrived(scheduler_fake_stack_);
    thread.context = back.fctx;
    current_ = nullptr;
}

// Ends the running thread's turn; returns when it is ready again.
void BlockRunner::suspend(State state) {
    Thread& me = *current_;
    me.state = state;
    leaving(&me.fake_stack, scheduler_stack_);
    const transfer_t back = jump_fcontext(scheduler_, nullptr);
    arrived(me.fake_stack, &scheduler_stack_);
    scheduler_ = back.fctx;
}

const std::array<std::uint64_t, kWarpLanes>& BlockRunner::exchange(WarpOperation operation,
                                                                   unsigned mask,
                                                                   std::uint64_t value) {
    if (mask != 0xFFFFFFFFU) fail("only whole warps may exchange");
    Thread& me = *current_;
    Warp& warp = warps_[me.number / kWarpLanes];
    auto& values = warp.values[warp.phase];
    values[lane()] = value;
    me.operation = operation;
    if (++warp.arrived < kWarpLanes) {
        suspend(State::at_warp_exchange);
        return values;
    }
    release_warp(operation);
    // Two buffers are enough: nobody fills this one again before all have read it and met again.
    warp.phase ^= 1;
    return values;
}

// The running thread is the last of its warp to arrive.
void BlockRunner::release_warp(WarpOperation operation) {
    const std::size_t first = current_->number / kWarpLanes * kWarpLanes;
    for (std::size_t i = first; i < first + kWarpLanes; ++i) {
        if (threads_[i]->operation != operation)
            fail("lanes of a warp meet in different operations");
        threads_[i]->state = State::ready;
    }
    warps_[current_->number / kWarpLanes].arrived = 0;
}

void BlockRunner::meet(WarpOperation operation, void* argument,
                       void (*complete)(void* const* arguments)) {
    Warp& warp = warps_[current_->number / kWarpLanes];
    warp.arguments[lane()] = argument;
    current_->operation = operation;
    if (++warp.arrived < kWarpLanes) return suspend(State::at_warp_exchange);
    release_warp(operation);
    complete(warp.arguments.data());
}

// Leaves the kernel where it stands: nothing on its stack is destroyed.
void BlockRunner::fail(const char* what) {
    fault_ = what;
    leaving(nullptr, scheduler_stack_);
    siglongjmp(faulted_, 1);
}

bool BlockRunner::pass_barrier() {
    for (std::size_t i = 0; i < count_; ++i) {
        if (threads_[i]->state != State::at_block_barrier) return false;
    }
    for (std::size_t i = 0; i < count_; ++i)
        threads_[i]->state = State::ready;
    return true;
}

bool BlockRunner::run_ready_threads(std::uint64_t random) {
    const std::size_t start = random / 2 % count_;
    bool any = false;
    for (std::size_t i = 0; i < count_; ++i) {
        const std::size_t turn = random % 2 == 0 ? i : count_ - 1 - i;
        Thread& thread = *threads_[(turn + start) % count_];
        if (thread.state != State::ready) continue;
        resume(thread);
        any = true;
    }
    return any;
}

void BlockRunner::run_block(std::uint64_t random) {
    for (std::size_t i = 0; i < count_; ++i) {
        threads_[i]->state = State::ready;
        threads_[i]->copies.copies.clear();
    }
    for (;;) {
        if (run_ready_threads(random) || pass_barrier()) continue;
        for (std::size_t i = 0; i < count_; ++i) {
            if (threads_[i]->state != State::done) {
                fault_ = "threads of a block wait for others that never come";
                return;
            }
        }
        return;
    }
}

std::string BlockRunner::run(const cudaLaunchConfig_t& config, const std::function<void()>& body,
                             std::uint64_t random) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
    fault_.clear();
    body_ = &body;
    blockDim = config.blockDim;
    gridDim = config.gridDim;
    prepare_threads(config.blockDim);
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    const std::size_t shared = shared_size_ = config.dynamicSmemBytes;
    if (sigsetjmp(faulted_, 1) == 0) {
        for (unsigned b = 0; b < blocks && fault_.empty(); ++b) {
            const unsigned block = random % 2 == 0 ? b : blocks - 1 - b;
            blockIdx = {block % gridDim.x, block / gridDim.x % gridDim.y,
                        block / gridDim.x / gridDim.y};
            std::memset(gpu::shared_bytes, kSharedPoison, shared);
            std::memset(gpu::shared_bytes + shared, kSharedMargin, 16);
            run_block(random == 0 ? 0 : random * (block + 1) >> 7);
            for (std::size_t i = shared; i < shared + 16; ++i) {
                if (gpu::shared_bytes[i] != kSharedMargin) fault_ = "a write past shared memory";
            }
        }
    } else {
        arrived(scheduler_fake_stack_);
        current_ = nullptr;
    }
    if (!fault_.empty()) {  // fibers that were left in mid-kernel start anew
        for (const auto& thread : threads_)
            thread->context = nullptr;
    }
    sigaction(SIGSEGV, &before, nullptr);
    return fault_;
}

}  // namespace

std::string run_kernel(const cudaLaunchConfig_t& config, const std::function<void()>& thread_body,
                       std::uint64_t random) {
    const std::size_t threads =
        std::size_t{config.blockDim.x} * config.blockDim.y * config.blockDim.z;
    if (threads == 0 || threads > 1024 || threads % kWarpLanes != 0)
        return "a block must have 32 to 1,024 threads, whole warps";
    if (config.dynamicSmemBytes > kSharedBytesMax)
        return "more shared memory than a block may have";
    return runner().run(config, thread_body, random);
}

const std::array<std::uint64_t, 32>& exchange(WarpOperation operation, unsigned mask,
                                              std::uint64_t value) {
    return runner().exchange(operation, mask, value);
}

unsigned lane() {
    return runner().lane();
}

void meet(WarpOperation operation, void* argument, void (*complete)(void* const* arguments)) {
    runner().meet(operation, argument, complete);
}

PendingCopies& pending_copies() {
    return runner().copies();
}

void fail_kernel(const char* what) {
    runner().fail(what);
}

bool in_shared_memory(const void* at, std::size_t bytes) {
    const auto* const begin = static_cast<const unsigned char*>(at);
    return begin >= gpu::shared_bytes &&
           begin + bytes <= gpu::shared_bytes + runner().shared_size();
}

}  // namespace troupe::emulator

void __syncthreads() {
    troupe::emulator::runner().wait_for_block();
}

void __syncwarp(unsigned mask) {
    (void)troupe::emulator::exchange(troupe::emulator::WarpOperation::synchronise, mask, 0);
}
