#include "storage/storage.hpp"

#include <chrono>
#include <utility>

#include "runtime/base/log.hpp"

namespace troupe::storage {
namespace {

constexpr std::int64_t kForgottenAtOnce = 64;  // so that a sweep holds up a batch by little
constexpr std::chrono::minutes kSweepInterval{10};

const actors::StorageCall& call_of(const actors::StorageMessage& message) {
    return std::visit([](const auto& m) -> const actors::StorageCall& { return m.call; }, message);
}

}  // namespace

std::vector<Storage::Reply> Storage::handle(const std::vector<actors::StorageMessage>& batch,
                                            std::int64_t unix_seconds) {
    auto replies = run_batch(batch, unix_seconds);
    if (replies) return std::move(*replies);
    database_.roll_back();
    log::error("cannot keep responses: {}", replies.error().message);
    std::vector<Reply> failures;
    for (const actors::StorageMessage& message : batch) {
        const actors::StorageCall& call = call_of(message);
        failures.push_back({call.hub, {.ticket = call.ticket, .done = false, .response = {}}});
    }
    return failures;
}

Result<std::vector<Storage::Reply>> Storage::run_batch(
    const std::vector<actors::StorageMessage>& batch, std::int64_t unix_seconds) {
    std::vector<Reply> replies;
    replies.reserve(batch.size());
    if (auto begun = database_.begin(); !begun) return begun.error();
    for (const actors::StorageMessage& message : batch) {
        auto reply = run_one(message);
        if (!reply) return reply.error();
        replies.push_back({call_of(message).hub, std::move(*reply)});
    }
    if (database_.bytes() > retention_.bytes) {
        auto forgotten = database_.forget(retention_, unix_seconds, kForgottenAtOnce);
        if (!forgotten) return forgotten.error();
    }
    if (auto committed = database_.commit(); !committed) return committed.error();
    return replies;
}

Result<actors::StorageReply> Storage::run_one(const actors::StorageMessage& message) {
    actors::StorageReply reply{.ticket = call_of(message).ticket, .done = true, .response = {}};
    if (const auto* put = std::get_if<actors::StoragePut>(&message)) {
        if (auto done = database_.put(put->response); !done) return done.error();
    } else if (const auto* find = std::get_if<actors::StorageFind>(&message)) {
        auto found = database_.find(find->id, find->principal);
        if (!found) return found.error();
        reply.response = std::move(*found);
        reply.done = reply.response.has_value();
    } else {
        const auto& erase = std::get<actors::StorageErase>(message);
        auto erased = database_.erase(erase.id, erase.principal);
        if (!erased) return erased.error();
        reply.done = *erased;
    }
    return reply;
}

bool Storage::sweep(std::int64_t unix_seconds) {
    auto done = database_.begin();
    Result<std::int64_t> forgotten = 0;
    if (done) forgotten = database_.forget(retention_, unix_seconds, kForgottenAtOnce);
    if (done && forgotten) done = database_.commit();
    if (done && forgotten) return *forgotten == kForgottenAtOnce;
    database_.roll_back();
    log::error("cannot forget old responses: {}",
               (done ? forgotten.error() : done.error()).message);
    return false;
}

boost::asio::awaitable<void> run_storage(runtime::Lane& lane, Storage& storage,
                                         runtime::Mailbox<actors::StorageMessage>& inbox,
                                         std::vector<runtime::Address<actors::HubMessage>> hubs,
                                         std::function<std::int64_t()> unix_seconds) {
    std::vector<actors::StorageMessage> batch;
    runtime::TimePoint next_sweep = lane.now();
    while (co_await inbox.receive_all_until(lane, next_sweep, batch)) {
        if (!batch.empty()) {
            for (Storage::Reply& reply : storage.handle(batch, unix_seconds()))
                hubs[reply.hub].send(std::move(reply.reply));
        }
        if (lane.now() < next_sweep) continue;
        const bool more = storage.sweep(unix_seconds());
        next_sweep = more ? lane.now() : lane.now() + kSweepInterval;
    }
}

}  // namespace troupe::storage
