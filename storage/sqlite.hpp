// SQLite as values: a connection and its prepared statements, errors as Results. Blocks; one thread
// at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe::storage {

class Statement;

class Connection {
 public:
    // Opens the file, which is made where there is none.
    [[nodiscard]] static Result<Connection> open(const std::filesystem::path& path);

    // Runs statements that give no rows, separated by semicolons.
    [[nodiscard]] Result<void> execute(const char* sql);
    [[nodiscard]] Result<Statement> prepare(std::string_view sql);

    [[nodiscard]] std::int64_t changed_rows() const { return sqlite3_changes64(handle_.get()); }
    // False: a transaction is open.
    [[nodiscard]] bool autocommit() const { return sqlite3_get_autocommit(handle_.get()) != 0; }

 private:
    struct Close {
        void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
    };
    [[nodiscard]] Error last_error() const;

    std::unique_ptr<sqlite3, Close> handle_;
};

// A prepared statement. Parameters and columns are counted from 1 and from 0, as in SQLite. Texts
// may hold NUL.
class Statement {
 public:
    // Begins anew, with these parameters.
    template <class... Values>
    Statement& with(const Values&... values) {
        sqlite3_reset(handle_.get());
        int index = 0;
        (bind(++index, values), ...);
        return *this;
    }

    // True: there is a row to read; false: there is no further one.
    [[nodiscard]] Result<bool> step();
    // For what gives no rows.
    [[nodiscard]] Result<void> run();

    [[nodiscard]] std::int64_t integer(int column) const {
        return sqlite3_column_int64(handle_.get(), column);
    }
    [[nodiscard]] std::string text(int column) const;

 private:
    friend class Connection;
    struct Finalize {
        void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
    };
    explicit Statement(sqlite3_stmt* handle) : handle_(handle) {}

    void bind(int index, std::int64_t value) { sqlite3_bind_int64(handle_.get(), index, value); }
    // `value` must live until the statement has run.
    void bind(int index, std::string_view value) {
        sqlite3_bind_text64(handle_.get(), index, value.data(), value.size(), SQLITE_STATIC,
                            SQLITE_UTF8);
    }

    std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

}  // namespace troupe::storage
