// Kept responses in one SQLite file: put, found, erased, and forgotten by age and size. Every
// change belongs to a transaction that its caller begins and commits; what is committed survives a
// crash of the program and of the machine. Blocks; owned by the Storage actor, on its thread.
//
// A response needs the turns before it, kept or not, so turns have a table of their own: a chain is
// a linked list there. A turn goes with the last response that needs it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "actors/stored_response.hpp"
#include "runtime/base/result.hpp"

namespace troupe::storage {

struct Retention {
    std::int64_t age_s = std::int64_t{30} * 24 * 3600;
    std::int64_t bytes = std::int64_t{1} << 30;  // of what is kept, without the file's own needs
};

class ResponseDatabase {
 public:
    // Opens DIRECTORY/responses.db, brings its schema up to date and locks it against other
    // processes. The error says what to do.
    [[nodiscard]] static Result<ResponseDatabase> open(const std::filesystem::path& directory);
    ResponseDatabase(ResponseDatabase&&) noexcept;
    ResponseDatabase& operator=(ResponseDatabase&&) noexcept;
    ~ResponseDatabase();

    // Random bytes as hex, made with the file: what the ids of owners are keyed with, so that a
    // restart knows them again.
    [[nodiscard]] const std::string& secret() const;

    [[nodiscard]] Result<void> begin();
    [[nodiscard]] Result<void> commit();
    void roll_back();

    [[nodiscard]] Result<void> put(const actors::StoredResponse& stored);
    // Nothing where there is none, or another principal owns it.
    [[nodiscard]] Result<std::optional<actors::StoredResponse>> find(std::string_view id,
                                                                     std::uint64_t principal);
    // False in the same cases.
    [[nodiscard]] Result<bool> erase(std::string_view id, std::uint64_t principal);

    // Forgets up to `most` responses that are too old or too many, oldest first; gives how many.
    [[nodiscard]] Result<std::int64_t> forget(const Retention& retention, std::int64_t unix_seconds,
                                              std::int64_t most);

    [[nodiscard]] std::int64_t bytes() const;    // of everything kept, as committed or not
    [[nodiscard]] Result<std::int64_t> turns();  // how many there are, for tests and checks

 private:
    class Impl;
    explicit ResponseDatabase(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::storage
