#include "tools/troupe/flags.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>

namespace troupe::tools {

Flag& Flag::group(const std::string& heading) {
    option_->group(heading);
    return *this;
}

Flag& Flag::shows_default() {
    option_->capture_default_str();
    return *this;
}

Flag& Flag::required() {
    option_->required();
    return *this;
}

Flag& Flag::needs(const Flag& other) {
    option_->needs(other.option_);
    return *this;
}

Flag& Flag::excludes(const Flag& other) {
    option_->excludes(other.option_);
    return *this;
}

Flag& Flag::separated_by(char separator) {
    option_->delimiter(separator);
    return *this;
}

Flag& Flag::within(std::int64_t least, std::int64_t most) {
    const auto check = [=](const std::string& text) {
        std::int64_t value = 0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
        if (fits) return std::string();
        if (most == std::numeric_limits<std::int64_t>::max())
            return fmt::format("{} is not a whole number from {} on", text, least);
        return fmt::format("{} is not a whole number from {} to {}", text, least, most);
    };
    option_->check(check, most == std::numeric_limits<std::int64_t>::max()
                              ? fmt::format("[from {}]", least)
                              : fmt::format("[{} to {}]", least, most));
    return *this;
}

Flag& Flag::positive() {
    return within(1, std::numeric_limits<std::int64_t>::max());
}

Flag& Flag::one_of(const std::vector<std::string>& words) {
    option_->check(CLI::IsMember(words));
    return *this;
}

Flag& Flag::bytes() {
    option_->transform(CLI::AsSizeValue(false));
    return *this;
}

Command Command::add_subcommand(const std::string& name, const std::string& what) {
    return Command(*app_->add_subcommand(name, what));
}

Command Command::add_choice(const std::string& name, const std::string& what) {
    auto* choice = app_->add_option_group(name, what);
    choice->require_option(1);
    return Command(*choice);
}

void Command::require_subcommand() {
    app_->require_subcommand(1);
}

template <typename T>
Flag Command::add(const std::string& names, T& value, const std::string& what) {
    return Flag(*app_->add_option(names, value, what));
}

Flag Command::add_switch(const std::string& names, bool& value, const std::string& what) {
    return Flag(*app_->add_flag(names, value, what));
}

void Command::when_chosen(std::function<void()> action) {
    app_->callback(std::move(action));
}

template Flag Command::add(const std::string&, std::string&, const std::string&);
template Flag Command::add(const std::string&, std::vector<std::string>&, const std::string&);
template Flag Command::add(const std::string&, double&, const std::string&);
template Flag Command::add(const std::string&, std::int32_t&, const std::string&);
template Flag Command::add(const std::string&, std::uint16_t&, const std::string&);
template Flag Command::add(const std::string&, std::uint32_t&, const std::string&);
template Flag Command::add(const std::string&, std::uint64_t&, const std::string&);
template Flag Command::add(const std::string&, std::int64_t&, const std::string&);
template Flag Command::add(const std::string&, std::optional<std::int64_t>&, const std::string&);
template Flag Command::add(const std::string&, std::optional<std::uint64_t>&, const std::string&);
template Flag Command::add(const std::string&, std::vector<std::int32_t>&, const std::string&);
template Flag Command::add(const std::string&, std::vector<std::uint32_t>&, const std::string&);

Program::Program(const std::string& what, const std::string& name, const std::string& version)
    : app_(std::make_unique<CLI::App>(what, name)) {
    app_->set_version_flag("--version", version);
}

Program::~Program() = default;

std::optional<int> Program::parse(int argc, char** argv, int usage_exit) {
    try {
        app_->parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app_->exit(error) == 0 ? 0 : usage_exit;
    }
    return std::nullopt;
}

}  // namespace troupe::tools
