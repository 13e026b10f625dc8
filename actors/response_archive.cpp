#include "actors/response_archive.hpp"

#include <string>
#include <utility>

#include "actors/limits.hpp"

namespace troupe::actors {

std::uint64_t ResponseArchive::remember(Call call) {
    if (calls_.size() >= limits::kStorageCallsMax) return 0;
    calls_.emplace(next_ticket_, std::move(call));
    return next_ticket_++;
}

Keeping ResponseArchive::keep(StoredResponse stored, Done done) {
    if (!storage_) {
        recent_.put(std::move(stored));
        return Keeping::kept;
    }
    // Not in memory before it is on the disk: what is read from there counts as a promise.
    const std::uint64_t ticket = remember({.put = stored, .done = std::move(done), .found = {}});
    if (ticket != 0 && storage_->send(StoragePut{{hub_, ticket}, std::move(stored)}))
        return Keeping::pending;
    calls_.erase(ticket);
    return Keeping::refused;
}

void ResponseArchive::find(std::string_view id, std::uint64_t principal, Found found) {
    const StoredResponse* recent = recent_.find(id, principal);
    if (recent != nullptr || !storage_) return found(recent);
    const std::uint64_t ticket = remember({.put = {}, .done = {}, .found = found});
    if (ticket == 0 || !storage_->send(StorageFind{{hub_, ticket}, std::string(id), principal})) {
        calls_.erase(ticket);
        found(nullptr);
    }
}

void ResponseArchive::erase(std::string_view id, std::uint64_t principal, Done done) {
    const bool erased = recent_.erase(id, principal);
    if (!storage_) return done(erased);
    const std::uint64_t ticket = remember({.put = {}, .done = done, .found = {}});
    if (ticket == 0 || !storage_->send(StorageErase{{hub_, ticket}, std::string(id), principal})) {
        calls_.erase(ticket);
        done(false);
    }
}

void ResponseArchive::on(const StorageReply& reply) {
    const auto waiting = calls_.find(reply.ticket);
    if (waiting == calls_.end()) return;
    Call call = std::move(waiting->second);
    calls_.erase(waiting);
    if (call.found) {
        if (reply.response) recent_.put(*reply.response);
        return call.found(reply.response ? &*reply.response : nullptr);
    }
    if (call.put && reply.done) recent_.put(std::move(*call.put));
    call.done(reply.done);
}

}  // namespace troupe::actors
