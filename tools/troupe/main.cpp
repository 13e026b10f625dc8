// The troupe program: one subcommand a job. Everything it does lives in the libraries.
#include <CLI/CLI.hpp>
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
    CLI::App app("troupe: serves a language model to many people at once", "troupe");
    app.require_subcommand(1);
    app.set_version_flag("--version", "troupe 0.1.0");
    std::string level = "info";
    app.add_option("--log-level", level, "debug, info, warn, error or off")
        ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
        ->capture_default_str();

    Run run;
    add_serve(app, run);
    add_chat(app, run);
    add_complete(app, run);
    add_next(app, run);
    add_perplexity(app, run);
    add_tokenize(app, run);
    add_inspect(app, run);
    add_kv(app, run);
    add_bench(app, run);
    add_simulate(app, run);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? exit_ok : exit_usage;
    }
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
