#include "storage/sqlite.hpp"

#include <fmt/format.h>

namespace troupe::storage {

Error Connection::last_error() const {
    const int code = sqlite3_errcode(handle_.get());
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return {ErrorKind::io, "it is in use by another program"};
    if (code == SQLITE_FULL) return {ErrorKind::io, "the disk is full"};
    return {ErrorKind::io, sqlite3_errmsg(handle_.get())};
}

Result<Connection> Connection::open(const std::filesystem::path& path) {
    sqlite3* handle = nullptr;
    const int code =
        sqlite3_open_v2(path.c_str(), &handle,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    Connection connection;
    connection.handle_.reset(handle);
    if (handle == nullptr) return Error{ErrorKind::out_of_memory, "there is no memory for SQLite"};
    if (code != SQLITE_OK) return connection.last_error();
    return connection;
}

Result<void> Connection::execute(const char* sql) {
    if (sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK)
        return last_error();
    return {};
}

Result<Statement> Connection::prepare(std::string_view sql) {
    sqlite3_stmt* handle = nullptr;
    if (sqlite3_prepare_v3(handle_.get(), sql.data(), static_cast<int>(sql.size()),
                           SQLITE_PREPARE_PERSISTENT, &handle, nullptr) != SQLITE_OK)
        return last_error();
    return Statement(handle);
}

Result<bool> Statement::step() {
    const int code = sqlite3_step(handle_.get());
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) {
        Error error{ErrorKind::io, code == SQLITE_FULL
                                       ? "the disk is full"
                                       : sqlite3_errmsg(sqlite3_db_handle(handle_.get()))};
        sqlite3_reset(handle_.get());
        return error;
    }
    sqlite3_reset(handle_.get());
    return false;
}

Result<void> Statement::run() {
    if (auto stepped = step(); !stepped) return stepped.error();
    return {};
}

std::string Statement::text(int column) const {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(handle_.get(), column));
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
    return bytes == nullptr ? std::string() : std::string(bytes, size);
}

}  // namespace troupe::storage
