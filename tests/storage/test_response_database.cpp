// Kept responses on the disk: what is put is found again by its owner, after a restart, too; turns
// live as long as somebody needs them; the oldest go first.
#include "storage/response_database.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "storage/schema.hpp"
#include "storage/sqlite.hpp"
#include "storage/storage.hpp"

using namespace troupe;
using namespace troupe::storage;
using actors::StoredResponse;
using actors::Turn;

namespace {

// A folder of the test's own, gone with it.
struct Folder {
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "troupe_XXXXXX").string();
        path = ::mkdtemp(name.data());
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
};

ResponseDatabase open(const Folder& folder) {
    auto database = ResponseDatabase::open(folder.path);
    REQUIRE(database.has_value());
    return std::move(*database);
}

StoredResponse response(const std::string& id, std::shared_ptr<const Turn> before = nullptr,
                        std::int64_t created_at = 100) {
    StoredResponse stored;
    stored.principal = 0xFEDC'BA98'7654'3210U;
    stored.id = id;
    stored.created_at = created_at;
    stored.last_sequence = 9;
    stored.json = "{\"id\":\"" + id + "\"}";
    stored.turn = std::make_shared<const Turn>(
        Turn{.id = id,
             .before = std::move(before),
             .input = {{.role = "user", .content = std::string("nul\0é", 6)},
                       {.role = "tool", .content = "", .name = "f", .tool_call_id = "c"}},
             .answer = "answer to " + id,
             .answered = true});
    return stored;
}

void commit(ResponseDatabase& database, const StoredResponse& stored) {
    REQUIRE(database.begin().has_value());
    REQUIRE(database.put(stored).has_value());
    REQUIRE(database.commit().has_value());
}

std::optional<StoredResponse> find(ResponseDatabase& database, const std::string& id) {
    auto found = database.find(id, response("x").principal);
    REQUIRE(found.has_value());
    return *found;
}

bool erase(ResponseDatabase& database, const std::string& id, std::uint64_t principal) {
    REQUIRE(database.begin().has_value());
    auto erased = database.erase(id, principal);
    REQUIRE(erased.has_value());
    REQUIRE(database.commit().has_value());
    return *erased;
}

}  // namespace

TEST_CASE("A response is found again by its owner, after a restart, too", "[storage]") {
    const Folder folder;
    const StoredResponse first = response("resp_1");
    const StoredResponse second = response("resp_2", first.turn);
    std::string secret;
    {
        auto database = open(folder);
        secret = database.secret();
        commit(database, second);  // brings the turn before it along
    }
    auto database = open(folder);
    CHECK(database.secret() == secret);
    CHECK(secret.size() == 32);
    const auto found = find(database, "resp_2");
    REQUIRE(found);
    CHECK(found->json == second.json);
    CHECK(found->created_at == 100);
    CHECK(found->last_sequence == 9);
    CHECK(found->completed);
    CHECK(found->turn->messages() == second.turn->messages());
    CHECK_FALSE(find(database, "resp_1"));  // only its turn was needed
    const auto stranger = database.find("resp_2", 5);
    REQUIRE(stranger.has_value());
    CHECK_FALSE(stranger->has_value());
    CHECK_FALSE(erase(database, "resp_2", 5));
}

TEST_CASE("A turn goes with the last response that needs it", "[storage]") {
    const Folder folder;
    auto database = open(folder);
    const StoredResponse root = response("root");
    const StoredResponse left = response("left", root.turn);
    const StoredResponse right = response("right", root.turn);
    for (const auto* stored : {&root, &left, &right})
        commit(database, *stored);
    CHECK(*database.turns() == 3);
    CHECK(erase(database, "root", root.principal));
    CHECK(*database.turns() == 3);
    CHECK(find(database, "left")->turn->messages() == left.turn->messages());
    CHECK(erase(database, "left", root.principal));
    CHECK(*database.turns() == 2);
    CHECK(erase(database, "right", root.principal));
    CHECK(*database.turns() == 0);
    CHECK(database.bytes() == 0);
    CHECK_FALSE(erase(database, "right", root.principal));
}

TEST_CASE("The oldest are forgotten, by age and by size", "[storage]") {
    const Folder folder;
    auto database = open(folder);
    for (int i = 0; i < 6; ++i)
        commit(database, response("resp_" + std::to_string(i), nullptr, 100 + i));
    const std::int64_t each = database.bytes() / 6;
    CHECK(*database.forget({.age_s = 10, .bytes = 1 << 20}, 110, 99) == 0);
    CHECK(*database.forget({.age_s = 10, .bytes = 1 << 20}, 112, 99) == 2);
    CHECK_FALSE(find(database, "resp_1"));
    CHECK(find(database, "resp_2"));
    CHECK(*database.forget({.age_s = 1000, .bytes = 2 * each}, 112, 1) == 1);
    CHECK(*database.forget({.age_s = 1000, .bytes = 2 * each}, 112, 99) == 1);
    CHECK_FALSE(find(database, "resp_3"));
    CHECK(find(database, "resp_4"));
    CHECK(database.bytes() == 2 * each);
}

TEST_CASE("What was not committed is not there", "[storage]") {
    const Folder folder;
    {
        auto database = open(folder);
        commit(database, response("resp_1"));
        REQUIRE(database.begin().has_value());
        REQUIRE(database.put(response("resp_2")).has_value());
        CHECK(find(database, "resp_2"));
        database.roll_back();
        CHECK_FALSE(find(database, "resp_2"));
        REQUIRE(database.begin().has_value());
        REQUIRE(database.put(response("resp_3")).has_value());
    }
    auto database = open(folder);
    CHECK(find(database, "resp_1"));
    CHECK_FALSE(find(database, "resp_3"));
    CHECK(*database.turns() == 1);
}

TEST_CASE("A file that is in use, newer or no database is refused with a reason", "[storage]") {
    const Folder folder;
    SECTION("in use") {
        const auto database = open(folder);
        const auto second = ResponseDatabase::open(folder.path);
        REQUIRE_FALSE(second.has_value());
        CHECK(second.error().message.find("in use by another program") != std::string::npos);
    }
    SECTION("newer") {
        { (void)open(folder); }
        auto connection = Connection::open(folder.path / "responses.db");
        REQUIRE(connection.has_value());
        const auto next = "PRAGMA user_version = " + std::to_string(kMigrations.size() + 1);
        REQUIRE(connection->execute(next.c_str()).has_value());
        connection = Error{};
        const auto database = ResponseDatabase::open(folder.path);
        REQUIRE_FALSE(database.has_value());
        CHECK(database.error().kind == ErrorKind::unsupported);
    }
    SECTION("no database") {
        std::FILE* file = std::fopen((folder.path / "responses.db").c_str(), "w");
        std::fputs("this is text, and long enough to be looked at as a header of a file", file);
        std::fclose(file);
        CHECK_FALSE(ResponseDatabase::open(folder.path).has_value());
    }
    SECTION("no folder") {
        CHECK_FALSE(ResponseDatabase::open("/proc/nothing/here").has_value());
    }
}

TEST_CASE("A batch is one transaction with one reply each, in order", "[storage][actor]") {
    const Folder folder;
    Storage storage(open(folder), {.age_s = 1000, .bytes = 1 << 20});
    const StoredResponse stored = response("resp_1");
    const auto replies = storage.handle({actors::StoragePut{{0, 1}, stored},
                                         actors::StorageFind{{2, 2}, "resp_1", stored.principal},
                                         actors::StorageErase{{0, 3}, "resp_1", stored.principal},
                                         actors::StorageFind{{0, 4}, "resp_1", stored.principal}},
                                        100);
    REQUIRE(replies.size() == 4);
    CHECK(replies[0].reply.done);
    CHECK(replies[1].hub == 2);
    CHECK(replies[1].reply.ticket == 2);
    REQUIRE(replies[1].reply.response);
    CHECK(replies[1].reply.response->json == stored.json);
    CHECK(replies[2].reply.done);
    CHECK_FALSE(replies[3].reply.done);
    CHECK_FALSE(replies[3].reply.response);
}

TEST_CASE("A sweep forgets a part at a time", "[storage][actor]") {
    const Folder folder;
    {
        auto database = open(folder);
        REQUIRE(database.begin().has_value());
        for (int i = 0; i < 70; ++i)
            REQUIRE(database.put(response("resp_" + std::to_string(i))).has_value());
        REQUIRE(database.commit().has_value());
    }
    Storage storage(open(folder), {.age_s = 10, .bytes = 1 << 20});
    CHECK(storage.sweep(1000));
    CHECK_FALSE(storage.sweep(1000));
    const auto gone =
        storage.handle({actors::StorageFind{{0, 1}, "resp_69", response("x").principal}}, 1000);
    CHECK_FALSE(gone[0].reply.done);
}
