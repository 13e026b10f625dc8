// What a hub keeps, with the test as the Storage actor.
#include "actors/response_archive.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

StoredResponse response(const std::string& id) {
    StoredResponse stored;
    stored.principal = 1;
    stored.id = id;
    stored.json = "{}";
    Turn turn;
    turn.id = id;
    stored.turn = std::make_shared<const Turn>(std::move(turn));
    return stored;
}

struct Fixture {
    StorageMessage next() {
        std::vector<StorageMessage> batch;
        REQUIRE(inbox.drain(batch) == 1);
        return batch[0];
    }
    static std::uint64_t ticket(const StorageMessage& message) {
        return std::visit([](const auto& m) { return m.call.ticket; }, message);
    }
    void find(const std::string& id) {
        archive.find(id, 1, [this](const StoredResponse* stored) {
            found += stored == nullptr ? "none " : stored->id + " ";
        });
    }

    runtime::Mailbox<StorageMessage> inbox{{.normal_max = 8, .control_max = 0}};
    ResponseArchive archive{4, 10, 100000, runtime::Address<StorageMessage>(inbox)};
    std::string found;
};

}  // namespace

TEST_CASE("Without a storage all is kept in memory, at once", "[actors][archive]") {
    ResponseArchive archive(0, 10, 100000, std::nullopt);
    CHECK(archive.keep(response("a"), {}) == Keeping::kept);
    std::string found;
    archive.find("a", 1, [&](const StoredResponse* stored) { found = stored->id; });
    CHECK(found == "a");
    bool erased = false;
    archive.erase("a", 1, [&](bool done) { erased = done; });
    CHECK(erased);
    archive.erase("a", 1, [&](bool done) { erased = done; });
    CHECK_FALSE(erased);
}

TEST_CASE("With a storage nothing is there before it is safe", "[actors][archive]") {
    Fixture f;
    int answers = 0;
    CHECK(f.archive.keep(response("a"), [&](bool kept) { answers += kept ? 1 : 10; }) ==
          Keeping::pending);
    const auto put = f.next();
    CHECK(std::get<StoragePut>(put).response.id == "a");
    CHECK(std::get<StoragePut>(put).call.hub == 4);
    CHECK(f.archive.recent().size() == 0);
    SECTION("then memory has it, too") {
        f.archive.on({.ticket = Fixture::ticket(put), .done = true, .response = {}});
        CHECK(answers == 1);
        f.find("a");
        CHECK(f.found == "a ");
        f.archive.on({.ticket = Fixture::ticket(put), .done = true, .response = {}});
        CHECK(answers == 1);
    }
    SECTION("or it could not be done") {
        f.archive.on({.ticket = Fixture::ticket(put), .done = false, .response = {}});
        CHECK(answers == 10);
        CHECK(f.archive.recent().size() == 0);
    }
}

TEST_CASE("What memory has not is asked of the storage, and then remembered", "[actors][archive]") {
    Fixture f;
    f.find("a");
    const auto find = f.next();
    CHECK(std::get<StorageFind>(find).principal == 1);
    CHECK(f.found.empty());
    f.archive.on({.ticket = Fixture::ticket(find), .done = true, .response = response("a")});
    f.find("a");
    CHECK(f.found == "a a ");
    f.find("b");
    f.archive.on({.ticket = Fixture::ticket(f.next()), .done = false, .response = {}});
    CHECK(f.found == "a a none ");
}

TEST_CASE("A storage that is gone keeps nothing and knows nothing", "[actors][archive]") {
    Fixture f;
    f.inbox.close();
    CHECK(f.archive.keep(response("a"), {}) == Keeping::refused);
    f.find("a");
    CHECK(f.found == "none ");
}
