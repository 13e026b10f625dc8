// What the subcommands of the program share: how each is registered, exit codes, printing of
// errors. One file a subcommand; main knows only this header.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe::tools {

// What a shell script may rely on.
enum ExitCode : int {
    exit_ok = 0,
    exit_failed = 1,  // it could not be done: files, ports, memory, the model
    exit_usage = 2,   // the flags or their values are wrong
};

// Each adds its subcommand to the program and, when it was the one chosen, leaves in `run` what is
// to be done; `run` returns the exit code.
using Run = std::function<int()>;
void add_serve(CLI::App& app, Run& run);
void add_chat(CLI::App& app, Run& run);
void add_complete(CLI::App& app, Run& run);
void add_next(CLI::App& app, Run& run);
void add_perplexity(CLI::App& app, Run& run);
void add_tokenize(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_kv(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_simulate(CLI::App& app, Run& run);

// "troupe: MESSAGE" on stderr; gives the exit code that fits the kind.
[[nodiscard]] int report(const Error& error);

}  // namespace troupe::tools
