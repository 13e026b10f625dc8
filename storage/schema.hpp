// The versions of the database's schema. Constant data.
#pragma once

#include <array>

namespace troupe::storage {

// Step i brings a file of version i to version i + 1; the version stands in PRAGMA user_version.
// What has once been released is never changed: a new version is a new step.
inline constexpr std::array kMigrations{
    R"(
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('secret', lower(hex(randomblob(16))));
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        principal INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        completed INTEGER NOT NULL,
        last_sequence INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        json TEXT NOT NULL
    );
    CREATE INDEX responses_by_age ON responses (created_at);
    CREATE TABLE turns (
        id TEXT PRIMARY KEY,
        before TEXT,
        answered INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        answer TEXT NOT NULL
    );
    CREATE INDEX turns_by_before ON turns (before);
    CREATE TABLE messages (
        turn TEXT NOT NULL,
        position INTEGER NOT NULL,
        role TEXT NOT NULL,
        content TEXT NOT NULL,
        name TEXT NOT NULL,
        tool_call_id TEXT NOT NULL,
        tool_calls TEXT NOT NULL,
        reasoning TEXT NOT NULL,
        PRIMARY KEY (turn, position)
    );
    )",
};

}  // namespace troupe::storage
