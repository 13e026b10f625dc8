// The Storage actor: the one writer of the disk. All that waits in its mailbox becomes one
// transaction, whose replies leave after the commit: what a hub hears of is safe. Lives on a thread
// of its own, because it blocks; sends StorageReply to the hubs.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/address.hpp"
#include "runtime/lane.hpp"
#include "runtime/mailbox.hpp"
#include "storage/response_database.hpp"

namespace troupe::storage {

// The core: one batch of messages, one transaction, one reply each.
class Storage {
 public:
    Storage(ResponseDatabase database, const Retention& retention)
        : database_(std::move(database)), retention_(retention) {}

    struct Reply {
        std::uint32_t hub = 0;
        actors::StorageReply reply;
    };

    // If the transaction fails, nothing of it is done, and every reply says so.
    [[nodiscard]] std::vector<Reply> handle(const std::vector<actors::StorageMessage>& batch,
                                            std::int64_t unix_seconds);

    // Forgets what is too old or too much, some of it at a time. True: there may be more.
    [[nodiscard]] bool sweep(std::int64_t unix_seconds);

 private:
    [[nodiscard]] Result<std::vector<Reply>> run_batch(
        const std::vector<actors::StorageMessage>& batch, std::int64_t unix_seconds);
    [[nodiscard]] Result<actors::StorageReply> run_one(const actors::StorageMessage& message);

    ResponseDatabase database_;
    const Retention retention_;
};

// The shell, until the mailbox is closed and empty. `hubs` by their index.
[[nodiscard]] boost::asio::awaitable<void> run_storage(
    runtime::Lane& lane, Storage& storage, runtime::Mailbox<actors::StorageMessage>& inbox,
    std::vector<runtime::Address<actors::HubMessage>> hubs,
    std::function<std::int64_t()> unix_seconds);

}  // namespace troupe::storage
