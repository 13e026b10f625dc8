// What the subcommands of the program share: how each is registered, exit codes, printing of
// errors. One file a subcommand; main knows only this header.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/result.hpp"
#include "tools/troupe/flags.hpp"

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
void add_serve(Command& app, Run& run);
void add_chat(Command& app, Run& run);
void add_complete(Command& app, Run& run);
void add_next(Command& app, Run& run);
void add_perplexity(Command& app, Run& run);
void add_tokenize(Command& app, Run& run);
void add_inspect(Command& app, Run& run);
void add_convert(Command& app, Run& run);
void add_pull(Command& app, Run& run);
void add_kv(Command& app, Run& run);
void add_bench(Command& app, Run& run);
void add_simulate(Command& app, Run& run);

// "troupe: MESSAGE" on stderr; gives the exit code that fits the kind.
[[nodiscard]] int report(const Error& error);

}  // namespace troupe::tools
