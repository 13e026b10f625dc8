#include "tests/gpu/emulator/block.hpp"

#include <sys/mman.h>

#include <algorithm>
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
alignas(128) unsigned char shared_bytes[emulator::kSharedBytesMax + 16];
}  // namespace troupe::gpu

namespace troupe::emulator {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr unsigned kWarpLanes = 32;
constexpr unsigned kWarpgroup = 128;
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

// Of frames that a fault left behind AddressSanitizer still guards the gaps.
void forget_frames([[maybe_unused]] const Stack& stack) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack.bottom, stack.bytes);
#endif
}

// Likewise of those that were called, on a stack that goes on, from the frame at `address`.
void forget_frames_below([[maybe_unused]] const Stack& stack, [[maybe_unused]] void* address) {
    auto* const bottom = static_cast<std::byte*>(stack.bottom);
    if (bottom == nullptr) return;
    forget_frames({bottom, static_cast<std::size_t>(static_cast<std::byte*>(address) - bottom)});
}

// What runs on a stack of its own: threads, one after another as long as they end without waiting.
struct Fiber {
    Stack stack;
    fcontext_t context = nullptr;  // where it stands while another runs
    void* fake_stack = nullptr;
};

enum class State { ready, at_block_barrier, at_warp_exchange, at_condition, done };

struct Thread {
    Fiber* fiber = nullptr;  // null before its first turn
    State state = State::done;
    WarpOperation operation = WarpOperation::synchronise;
    uint3 index;
    unsigned number = 0;  // in the block
    PendingCopies copies;
    PendingProducts products;
    bool (*condition)(void*) = nullptr;
    void* condition_argument = nullptr;
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
    void wait_until(bool (*ready)(void*), void* argument);
    [[nodiscard]] PendingCopies& copies() { return current_->copies; }
    [[nodiscard]] PendingProducts& products() { return current_->products; }
    [[nodiscard]] std::map<const void*, ByteBarrier>& barriers() { return barriers_; }
    [[nodiscard]] bool eager() const { return eager_; }
    [[nodiscard]] std::size_t shared_size() const { return shared_size_; }
    [[nodiscard]] unsigned lane() const { return current_->number % kWarpLanes; }
    [[nodiscard]] bool running() const { return current_ != nullptr; }
    [[noreturn]] void fail(const char* what);

 private:
    static void fiber_main(transfer_t from);
    void prepare_threads(dim3 block);
    void run_block(std::uint64_t random);
    Thread* next_thread();
    Fiber& unused_fiber();
    void switch_to(Thread* thread);
    void go(Fiber& to);
    void arrive(transfer_t from, const Fiber& me);
    void suspend(State state);
    bool pass_barrier();
    bool meet_conditions();
    void check_asynchronous_work();
    void release_warp(WarpOperation operation);

    std::vector<Thread> threads_;  // of this block
    std::vector<Warp> warps_;
    std::vector<std::unique_ptr<Fiber>> fibers_;  // as many as ever waited at once
    std::vector<Fiber*> unused_;                  // stand in fiber_main() without a thread
    // Turns go round the block's threads from `start_` on, in one direction.
    std::size_t start_ = 0, turn_ = 0;
    bool backwards_ = false;
    bool eager_ = false;
    std::map<const void*, ByteBarrier> barriers_;  // of this block
    bool any_ran_ = false;                         // in this round
    std::size_t shared_size_ = 0;                  // of this block, in bytes
    const std::function<void()>* body_ = nullptr;
    Thread* current_ = nullptr;
    Fiber scheduler_;  // who called run()
    Fiber* running_ = &scheduler_;
    Fiber* before_ = nullptr;  // who ran before
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

// A fiber takes thread after thread; where the next one waits on another fiber, it goes there, and
// is kept for threads that begin later.
void BlockRunner::fiber_main(transfer_t from) {
    BlockRunner& self = runner();
    Fiber& me = *self.running_;
    self.arrive(from, me);
    for (;;) {
        self.current_->fiber = &me;
        (*self.body_)();
        self.current_->state = State::done;
        Thread* const next = self.next_thread();
        if (next != nullptr && next->fiber == nullptr) {
            self.current_ = next;
            threadIdx = next->index;
            continue;
        }
        self.unused_.push_back(&me);
        self.switch_to(next);
    }
}

void BlockRunner::prepare_threads(dim3 block) {
    threads_.resize(std::size_t{block.x} * block.y * block.z);
    warps_.assign((threads_.size() + kWarpLanes - 1) / kWarpLanes, {});
    for (unsigned i = 0; i < threads_.size(); ++i) {
        threads_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
        threads_[i].number = i;
    }
}

Fiber& BlockRunner::unused_fiber() {
    if (unused_.empty()) {
        Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
        fiber.stack.bytes = kStackBytes;
        fiber.stack.bottom = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        TROUPE_ASSERT(fiber.stack.bottom != MAP_FAILED);
        unused_.push_back(&fiber);
    }
    Fiber& fiber = *unused_.back();
    unused_.pop_back();
    if (fiber.context != nullptr) return fiber;
    fiber.fake_stack = nullptr;
    forget_frames(fiber.stack);
    // Stacks that all begin at the same offset would share a few lines of the cache.
    const std::size_t bytes = fiber.stack.bytes - fibers_.size() * 704 % 65'536;
    fiber.context = make_fcontext(static_cast<std::byte*>(fiber.stack.bottom) + bytes, bytes,
                                  &BlockRunner::fiber_main);
    return fiber;
}

// Goes on with a thread, or, for null, with whoever called run(). Returns when this fiber's turn
// comes again.
void BlockRunner::switch_to(Thread* thread) {
    current_ = thread;
    if (thread == nullptr) return go(scheduler_);
    threadIdx = thread->index;
    go(thread->fiber != nullptr ? *thread->fiber : unused_fiber());
}

void BlockRunner::go(Fiber& to) {
    Fiber& me = *running_;
    if (&to == &me) return;
    before_ = &me;
    running_ = &to;
    leaving(&me.fake_stack, to.stack);
    arrive(jump_fcontext(to.context, nullptr), me);
}

void BlockRunner::arrive(transfer_t from, const Fiber& me) {
    before_->context = from.fctx;
    arrived(me.fake_stack, before_ == &scheduler_ ? &scheduler_.stack : nullptr);
}

// Ends the running thread's turn; returns when it is ready again.
void BlockRunner::suspend(State state) {
    current_->state = state;
    switch_to(next_thread());
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
        if (threads_[i].operation != operation)
            fail("lanes of a warp meet in different operations");
        threads_[i].state = State::ready;
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
    leaving(nullptr, scheduler_.stack);
    siglongjmp(faulted_, 1);
}

bool BlockRunner::pass_barrier() {
    const auto waits = [](const Thread& thread) { return thread.state == State::at_block_barrier; };
    if (!std::all_of(threads_.begin(), threads_.end(), waits)) return false;
    for (Thread& thread : threads_)
        thread.state = State::ready;
    return true;
}

void BlockRunner::wait_until(bool (*ready)(void*), void* argument) {
    current_->condition = ready;
    current_->condition_argument = argument;
    suspend(State::at_condition);
}

bool BlockRunner::meet_conditions() {
    bool any = false;
    for (Thread& thread : threads_) {
        if (thread.state != State::at_condition) continue;
        if (!thread.condition(thread.condition_argument)) continue;
        thread.state = State::ready;
        any = true;
    }
    return any;
}

// Of a block whose threads are done.
void BlockRunner::check_asynchronous_work() {
    for (const auto& [at, barrier] : barriers_) {
        if (!barrier.copies.empty()) fault_ = "a copy to shared memory that nobody waited for";
    }
    for (const Thread& thread : threads_) {
        if (!thread.products.products.empty()) fault_ = "products that nobody waited for";
        const std::size_t first = thread.number / kWarpgroup * kWarpgroup;
        if (thread.products.history != threads_[first].products.history)
            fault_ = "warps of a warpgroup multiply different things";
    }
}

// Null where none can go on.
Thread* BlockRunner::next_thread() {
    const std::size_t count = threads_.size();
    for (;;) {
        for (; turn_ < count; ++turn_) {
            const std::size_t at = start_ + (backwards_ ? count - 1 - turn_ : turn_);
            Thread& thread = threads_[at < count ? at : at - count];
            if (thread.state != State::ready) continue;
            ++turn_;
            any_ran_ = true;
            return &thread;
        }
        if (!any_ran_ && !pass_barrier() && !meet_conditions()) return nullptr;
        turn_ = 0;
        any_ran_ = false;
    }
}

void BlockRunner::run_block(std::uint64_t random) {
    for (Thread& thread : threads_) {
        thread.fiber = nullptr;
        thread.state = State::ready;
        thread.copies.copies.clear();
        thread.products = {};
    }
    barriers_.clear();
    eager_ = random / 4 % 2 != 0;
    start_ = random / 2 % threads_.size();
    backwards_ = random % 2 != 0;
    turn_ = 0;
    any_ran_ = false;
    switch_to(next_thread());
    const auto done = [](const Thread& thread) { return thread.state == State::done; };
    if (std::all_of(threads_.begin(), threads_.end(), done)) {
        check_asynchronous_work();
    } else {
        fault_ = "threads of a block wait for others that never come";
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
        arrived(scheduler_.fake_stack);
        forget_frames_below(scheduler_.stack, __builtin_frame_address(0));
        current_ = nullptr;
    }
    if (!fault_.empty()) {  // fibers that were left in mid-kernel start anew
        running_ = &scheduler_;
        unused_.clear();
        for (const auto& fiber : fibers_) {
            fiber->context = nullptr;
            unused_.push_back(fiber.get());
        }
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

bool eager() {
    return runner().eager();
}

void wait_until(bool (*ready)(void*), void* argument) {
    runner().wait_until(ready, argument);
}

PendingCopies& pending_copies() {
    return runner().copies();
}

PendingProducts& pending_products() {
    return runner().products();
}

std::map<const void*, ByteBarrier>& byte_barriers() {
    return runner().barriers();
}

unsigned char* shared_begin() {
    return gpu::shared_bytes;
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
