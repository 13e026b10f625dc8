// The responses that are kept, as one hub sees them: the latest in memory, and all of them with the
// Storage actor where there is one. Sends StoragePut, StorageFind and StorageErase; lives with its
// hub on an io thread. Without a storage every answer is there at once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "actors/messages.hpp"
#include "actors/response_store.hpp"
#include "runtime/address.hpp"

namespace troupe::actors {

class ResponseArchive {
 public:
    using Done = std::function<void(bool done)>;
    // Null: there is none, or another principal owns it. Valid during the call.
    using Found = std::function<void(const StoredResponse* stored)>;

    ResponseArchive(std::uint32_t hub, std::size_t responses_max, std::size_t bytes_max,
                    std::optional<runtime::Address<StorageMessage>> storage)
        : hub_(hub), storage_(storage), recent_(responses_max, bytes_max) {}

    // Keeps a response that has ended. If that is pending, `done` says later whether it is kept:
    // then no crash can take it away.
    [[nodiscard]] Keeping keep(StoredResponse stored, Done done);

    // Both may call back before they return.
    void find(std::string_view id, std::uint64_t principal, Found found);
    void erase(std::string_view id, std::uint64_t principal, Done done);

    void on(const StorageReply& reply);

    [[nodiscard]] const ResponseStore& recent() const { return recent_; }

 private:
    struct Call {
        std::optional<StoredResponse> put;
        Done done;
        Found found;
    };

    // A call's ticket, or 0 where too many wait for the storage.
    [[nodiscard]] std::uint64_t remember(Call call);

    const std::uint32_t hub_;
    const std::optional<runtime::Address<StorageMessage>> storage_;
    ResponseStore recent_;
    std::unordered_map<std::uint64_t, Call> calls_;  // with the storage
    std::uint64_t next_ticket_ = 1;
};

}  // namespace troupe::actors
