// The troupe program: one subcommand a job. Everything it does lives in the libraries.
#include <cstdio>

#include "runtime/base/log.hpp"
#include "tools/troupe/command.hpp"

namespace troupe::tools {

int report(const Error& error) {
    std::fprintf(stderr, "troupe: %s\n", error.message.c_str());
    return error.kind == ErrorKind::invalid_input ? exit_usage : exit_failed;
}

namespace {

int run_program(int argc, char** argv) {
    Program program("troupe: serves a language model to many people at once", "troupe",
                    "troupe 0.1.0");
    auto app = program.root();
    app.require_subcommand();
    std::string level = "info";
    app.add("--log-level", level, "debug, info, warn, error or off")
        .one_of({"debug", "info", "warn", "error", "off"})
        .shows_default();

    Run run;
    add_serve(app, run);
    add_chat(app, run);
    add_complete(app, run);
    add_next(app, run);
    add_perplexity(app, run);
    add_tokenize(app, run);
    add_inspect(app, run);
    add_convert(app, run);
    add_pull(app, run);
    add_kv(app, run);
    add_bench(app, run);
    add_simulate(app, run);
    if (const auto exit_code = program.parse(argc, argv, exit_usage)) return *exit_code;
    log::set_up(level == "debug"   ? log::Level::debug
                : level == "warn"  ? log::Level::warn
                : level == "error" ? log::Level::error
                : level == "off"   ? log::Level::off
                                   : log::Level::info);
    return run();
}

}  // namespace
}  // namespace troupe::tools

int main(int argc, char** argv) {
    return troupe::tools::run_program(argc, argv);
}
