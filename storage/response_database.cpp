#include "storage/response_database.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "storage/schema.hpp"
#include "storage/sqlite.hpp"

namespace troupe::storage {
namespace {

// One statement an operation, prepared once.
struct Statements {
    Statement put_response, put_turn, put_message;
    Statement find_response, find_turn, find_messages;
    Statement owner_of, erase_response, erase_turn, erase_messages, turn_needed;
    Statement oldest, total_bytes, count_turns;
};

Result<Statements> prepare_all(Connection& connection) {
    std::vector<Statement> made;
    for (const char* sql : {
             "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)",
             "INSERT OR IGNORE INTO turns VALUES (?, nullif(?, ''), ?, ?, ?)",
             "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
             "SELECT created_at, completed, last_sequence, json FROM responses"
             " WHERE id = ? AND principal = ?",
             "SELECT before, answered, answer FROM turns WHERE id = ?",
             "SELECT role, content, name, tool_call_id, tool_calls, reasoning FROM messages"
             " WHERE turn = ? ORDER BY position",
             "SELECT bytes FROM responses WHERE id = ? AND principal = ?",
             "DELETE FROM responses WHERE id = ?",
             "DELETE FROM turns WHERE id = ? RETURNING before, bytes",
             "DELETE FROM messages WHERE turn = ?",
             "SELECT EXISTS (SELECT 1 FROM responses WHERE id = ?1)"
             " OR EXISTS (SELECT 1 FROM turns WHERE before = ?1)",
             "SELECT id, principal, created_at FROM responses ORDER BY created_at, rowid LIMIT 1",
             "SELECT (SELECT coalesce(sum(bytes), 0) FROM responses)"
             " + (SELECT coalesce(sum(bytes), 0) FROM turns)",
             "SELECT count(*) FROM turns",
         }) {
        auto statement = connection.prepare(sql);
        if (!statement) return statement.error();
        made.push_back(std::move(*statement));
    }
    return Statements{std::move(made[0]),  std::move(made[1]),  std::move(made[2]),
                      std::move(made[3]),  std::move(made[4]),  std::move(made[5]),
                      std::move(made[6]),  std::move(made[7]),  std::move(made[8]),
                      std::move(made[9]),  std::move(made[10]), std::move(made[11]),
                      std::move(made[12]), std::move(made[13])};
}

Result<std::int64_t> number(Connection& connection, std::string_view sql) {
    auto statement = connection.prepare(sql);
    if (!statement) return statement.error();
    auto row = statement->step();
    if (!row) return row.error();
    return *row ? statement->integer(0) : 0;
}

// The exclusive lock keeps a second server from the file; full synchronisation makes a commit
// outlast a power cut, not only a kill.
constexpr const char* kSettings = R"(
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA secure_delete = ON;
)";

Result<void> migrate(Connection& connection) {
    const auto version = number(connection, "PRAGMA user_version");
    if (!version) return version.error();
    if (*version > static_cast<std::int64_t>(kMigrations.size()))
        return Error{ErrorKind::unsupported, "a newer troupe has written it"};
    if (auto begun = connection.execute("BEGIN EXCLUSIVE"); !begun) return begun;
    for (auto step = static_cast<std::size_t>(*version); step < kMigrations.size(); ++step) {
        if (auto done = connection.execute(kMigrations[step]); !done) return done;
    }
    const auto mark = fmt::format("PRAGMA user_version = {}; COMMIT", kMigrations.size());
    return connection.execute(mark.c_str());
}

}  // namespace

class ResponseDatabase::Impl {
 public:
    Impl(Connection connection, Statements statements, std::string secret, std::int64_t bytes)
        : connection_(std::move(connection)),
          sql_(std::move(statements)),
          secret_(std::move(secret)),
          bytes_(bytes) {}

    [[nodiscard]] Result<void> put(const actors::StoredResponse& stored);
    [[nodiscard]] Result<std::optional<actors::StoredResponse>> find(std::string_view id,
                                                                     std::uint64_t principal);
    [[nodiscard]] Result<bool> erase(std::string_view id, std::uint64_t principal);
    [[nodiscard]] Result<std::int64_t> forget(const Retention& retention, std::int64_t unix_seconds,
                                              std::int64_t most);

    Connection connection_;
    Statements sql_;
    const std::string secret_;
    std::int64_t bytes_;             // of all responses and turns
    std::int64_t bytes_before_ = 0;  // as of begin()

 private:
    [[nodiscard]] Result<bool> put_turn(const actors::Turn& turn);
    [[nodiscard]] Result<std::shared_ptr<const actors::Turn>> read_chain(std::string id);
    [[nodiscard]] Result<void> read_messages(actors::Turn& turn);
    [[nodiscard]] Result<void> release_turns(std::string id);
};

Result<void> ResponseDatabase::Impl::put(const actors::StoredResponse& stored) {
    const auto bytes = static_cast<std::int64_t>(stored.id.size() + stored.json.size());
    auto& insert =
        sql_.put_response.with(stored.id, static_cast<std::int64_t>(stored.principal),
                               stored.created_at, std::int64_t{stored.completed},
                               static_cast<std::int64_t>(stored.last_sequence), bytes, stored.json);
    if (auto done = insert.run(); !done) return done;
    bytes_ += bytes;
    for (const actors::Turn* turn = stored.turn.get(); turn != nullptr; turn = turn->before.get()) {
        auto added = put_turn(*turn);
        if (!added) return added.error();
        if (!*added) break;  // it is here, and so are those before it
    }
    return {};
}

Result<bool> ResponseDatabase::Impl::put_turn(const actors::Turn& turn) {
    const auto bytes = static_cast<std::int64_t>(actors::turn_bytes(turn));
    const std::string_view before = turn.before ? std::string_view(turn.before->id) : "";
    auto& insert =
        sql_.put_turn.with(turn.id, before, std::int64_t{turn.answered}, bytes, turn.answer);
    if (auto done = insert.run(); !done) return done.error();
    if (connection_.changed_rows() == 0) return false;
    bytes_ += bytes;
    for (std::size_t i = 0; i < turn.input.size(); ++i) {
        const model::ChatMessage& message = turn.input[i];
        auto done = sql_.put_message
                        .with(turn.id, static_cast<std::int64_t>(i), message.role, message.content,
                              message.name, message.tool_call_id, message.tool_calls_json,
                              message.reasoning)
                        .run();
        if (!done) return done.error();
    }
    return true;
}

Result<std::optional<actors::StoredResponse>> ResponseDatabase::Impl::find(
    std::string_view id, std::uint64_t principal) {
    auto& query = sql_.find_response.with(id, static_cast<std::int64_t>(principal));
    auto row = query.step();
    if (!row) return row.error();
    if (!*row) return std::optional<actors::StoredResponse>();
    actors::StoredResponse stored;
    stored.principal = principal;
    stored.id = id;
    stored.created_at = query.integer(0);
    stored.completed = query.integer(1) != 0;
    stored.last_sequence = static_cast<std::uint64_t>(query.integer(2));
    stored.json = query.text(3);
    (void)query.with();
    auto chain = read_chain(stored.id);
    if (!chain) return chain.error();
    stored.turn = std::move(*chain);
    return std::optional(std::move(stored));
}

// From the newest turn to the oldest, then linked the other way round.
Result<std::shared_ptr<const actors::Turn>> ResponseDatabase::Impl::read_chain(std::string id) {
    std::vector<actors::Turn> newest_first;
    while (!id.empty()) {
        auto& query = sql_.find_turn.with(id);
        auto row = query.step();
        if (!row) return row.error();
        if (!*row) return Error{ErrorKind::io, fmt::format("the turn {} is missing", id)};
        actors::Turn turn;
        turn.id = std::exchange(id, query.text(0));
        turn.answered = query.integer(1) != 0;
        turn.answer = query.text(2);
        (void)query.with();
        if (auto read = read_messages(turn); !read) return read.error();
        newest_first.push_back(std::move(turn));
    }
    std::shared_ptr<const actors::Turn> chain;
    for (auto turn = newest_first.rbegin(); turn != newest_first.rend(); ++turn) {
        turn->before = std::move(chain);
        chain = std::make_shared<const actors::Turn>(std::move(*turn));
    }
    return chain;
}

Result<void> ResponseDatabase::Impl::read_messages(actors::Turn& turn) {
    auto& query = sql_.find_messages.with(turn.id);
    while (true) {
        auto row = query.step();
        if (!row) return row.error();
        if (!*row) return {};
        turn.input.push_back({.role = query.text(0),
                              .content = query.text(1),
                              .name = query.text(2),
                              .tool_call_id = query.text(3),
                              .tool_calls_json = query.text(4),
                              .reasoning = query.text(5)});
    }
}

Result<bool> ResponseDatabase::Impl::erase(std::string_view id, std::uint64_t principal) {
    auto& owned = sql_.owner_of.with(id, static_cast<std::int64_t>(principal));
    auto row = owned.step();
    if (!row) return row.error();
    if (!*row) return false;
    bytes_ -= owned.integer(0);
    (void)owned.with();
    if (auto done = sql_.erase_response.with(id).run(); !done) return done.error();
    if (auto done = release_turns(std::string(id)); !done) return done.error();
    return true;
}

// Erases the turn and those before it, as far as nobody else needs them.
Result<void> ResponseDatabase::Impl::release_turns(std::string id) {
    while (!id.empty()) {
        auto& needed = sql_.turn_needed.with(id);
        auto row = needed.step();
        if (!row) return row.error();
        const bool keep = needed.integer(0) != 0;
        (void)needed.with();
        if (keep) return {};
        if (auto done = sql_.erase_messages.with(id).run(); !done) return done;
        auto& erased = sql_.erase_turn.with(id);
        row = erased.step();
        if (!row) return row.error();
        if (!*row) return {};
        std::string before = erased.text(0);
        bytes_ -= erased.integer(1);
        if (auto done = erased.run(); !done) return done;
        id = std::move(before);
    }
    return {};
}

Result<std::int64_t> ResponseDatabase::Impl::forget(const Retention& retention,
                                                    std::int64_t unix_seconds, std::int64_t most) {
    for (std::int64_t forgotten = 0; forgotten < most; ++forgotten) {
        auto& oldest = sql_.oldest.with();
        auto row = oldest.step();
        if (!row) return row.error();
        if (!*row) return forgotten;
        const std::string id = oldest.text(0);
        const auto principal = static_cast<std::uint64_t>(oldest.integer(1));
        const bool expired = unix_seconds - oldest.integer(2) > retention.age_s;
        (void)oldest.with();
        if (!expired && bytes_ <= retention.bytes) return forgotten;
        if (auto erased = erase(id, principal); !erased) return erased.error();
    }
    return most;
}

// ---- the door -----------------------------------------------------------------------------------

Result<ResponseDatabase> ResponseDatabase::open(const std::filesystem::path& directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    const auto path = directory / "responses.db";
    const auto failed = [&path](const Error& why) {
        return Error{why.kind, fmt::format("cannot open {}: {}", path.string(), why.message)};
    };
    if (error) return failed({ErrorKind::io, error.message()});
    auto connection = Connection::open(path);
    if (!connection) return failed(connection.error());
    if (auto set = connection->execute(kSettings); !set) return failed(set.error());
    if (auto migrated = migrate(*connection); !migrated) return failed(migrated.error());
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, error);
    auto secret = connection->prepare("SELECT value FROM meta WHERE name = 'secret'");
    if (!secret) return failed(secret.error());
    if (auto row = secret->step(); !row || !*row)
        return failed({ErrorKind::io, "it has lost its secret"});
    const std::string value = secret->text(0);
    (void)secret->with();
    auto statements = prepare_all(*connection);
    if (!statements) return failed(statements.error());
    if (auto row = statements->total_bytes.step(); !row) return failed(row.error());
    const std::int64_t bytes = statements->total_bytes.integer(0);
    (void)statements->total_bytes.with();
    return ResponseDatabase(
        std::make_unique<Impl>(std::move(*connection), std::move(*statements), value, bytes));
}

ResponseDatabase::ResponseDatabase(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResponseDatabase::ResponseDatabase(ResponseDatabase&&) noexcept = default;
ResponseDatabase& ResponseDatabase::operator=(ResponseDatabase&&) noexcept = default;
ResponseDatabase::~ResponseDatabase() = default;

const std::string& ResponseDatabase::secret() const {
    return impl_->secret_;
}

Result<void> ResponseDatabase::begin() {
    impl_->bytes_before_ = impl_->bytes_;
    return impl_->connection_.execute("BEGIN IMMEDIATE");
}

Result<void> ResponseDatabase::commit() {
    return impl_->connection_.execute("COMMIT");
}

void ResponseDatabase::roll_back() {
    impl_->bytes_ = impl_->bytes_before_;
    // Some errors have rolled back already.
    if (!impl_->connection_.autocommit()) (void)impl_->connection_.execute("ROLLBACK");
}

Result<void> ResponseDatabase::put(const actors::StoredResponse& stored) {
    return impl_->put(stored);
}

Result<std::optional<actors::StoredResponse>> ResponseDatabase::find(std::string_view id,
                                                                     std::uint64_t principal) {
    return impl_->find(id, principal);
}

Result<bool> ResponseDatabase::erase(std::string_view id, std::uint64_t principal) {
    return impl_->erase(id, principal);
}

Result<std::int64_t> ResponseDatabase::forget(const Retention& retention, std::int64_t unix_seconds,
                                              std::int64_t most) {
    return impl_->forget(retention, unix_seconds, most);
}

std::int64_t ResponseDatabase::bytes() const {
    return impl_->bytes_;
}

Result<std::int64_t> ResponseDatabase::turns() {
    auto& query = impl_->sql_.count_turns.with();
    auto row = query.step();
    if (!row) return row.error();
    const std::int64_t count = query.integer(0);
    (void)query.with();
    return count;
}

}  // namespace troupe::storage
