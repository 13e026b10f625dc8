// Flags and subcommands of the program. CLI11 lies behind this: its templates are compiled in
// flags.cpp alone, not once more in the file of every subcommand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace troupe::tools {

// One flag; what is said of it is checked before any command runs.
class Flag {
 public:
    explicit Flag(CLI::Option& option) : option_(&option) {}

    Flag& group(const std::string& heading);  // of --help
    Flag& shows_default();                    // --help tells the value that it has now
    Flag& required();
    Flag& needs(const Flag& other);
    Flag& excludes(const Flag& other);
    Flag& separated_by(char separator);  // of the values of a list
    Flag& within(std::int64_t least, std::int64_t most);
    Flag& positive();
    Flag& one_of(const std::vector<std::string>& words);
    Flag& bytes();  // may be given as 512MB, 1GiB

 private:
    CLI::Option* option_;
};

class Command {
 public:
    explicit Command(CLI::App& app) : app_(&app) {}

    Command add_subcommand(const std::string& name, const std::string& what);
    // Of the flags added to the result exactly one is to be given.
    Command add_choice(const std::string& name, const std::string& what);
    void require_subcommand();
    // `names` as "--model,-m"; a name without dashes may be given by its place. `value` must
    // outlive the parsing. Defined for the types of flags.cpp.
    template <typename T>
    Flag add(const std::string& names, T& value, const std::string& what);
    Flag add_switch(const std::string& names, bool& value, const std::string& what);
    void when_chosen(std::function<void()> action);

 private:
    CLI::App* app_;
};

// The program's own command line.
class Program {
 public:
    Program(const std::string& what, const std::string& name, const std::string& version);
    ~Program();

    [[nodiscard]] Command root() { return Command(*app_); }
    // Sets the values and calls the chosen command's action. Where there is nothing to run (help,
    // version, an error, each printed), the exit code: 0, or `usage_exit` for an error.
    [[nodiscard]] std::optional<int> parse(int argc, char** argv, int usage_exit);

 private:
    std::unique_ptr<CLI::App> app_;
};

}  // namespace troupe::tools
