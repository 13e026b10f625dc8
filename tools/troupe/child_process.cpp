#include "tools/troupe/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/base/assert.hpp"

namespace troupe::tools {
namespace {

class SpawnSetup {
 public:
    SpawnSetup(const sigset_t& mask, const std::filesystem::path& errors) {
        posix_spawn_file_actions_init(&files_);
        posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&files_, STDERR_FILENO, STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&files_, STDERR_FILENO, errors.c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600);
        posix_spawnattr_init(&attributes_);
        posix_spawnattr_setsigmask(&attributes_, &mask);
        posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
    }
    ~SpawnSetup() {
        posix_spawnattr_destroy(&attributes_);
        posix_spawn_file_actions_destroy(&files_);
    }
    SpawnSetup(const SpawnSetup&) = delete;
    SpawnSetup& operator=(const SpawnSetup&) = delete;

    [[nodiscard]] Result<pid_t> spawn(const std::vector<std::string>& command) const {
        std::vector<char*> arguments;
        for (const std::string& argument : command)
            arguments.push_back(const_cast<char*>(argument.c_str()));
        arguments.push_back(nullptr);
        pid_t child = 0;
        const int code = posix_spawnp(&child, arguments.front(), &files_, &attributes_,
                                      arguments.data(), environ);
        if (code == 0) return child;
        return Error{code == ENOENT ? ErrorKind::not_found : ErrorKind::io,
                     fmt::format("cannot run {}: {}", command.front(),
                                 std::generic_category().message(code))};
    }

 private:
    posix_spawn_file_actions_t files_{};
    posix_spawnattr_t attributes_{};
};

}  // namespace

HeldSignals::HeldSignals() {
    sigemptyset(&held_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
        sigaddset(&held_, signal);
    ::signal(SIGCHLD, SIG_DFL);  // whoever ignores it is not told
    sigprocmask(SIG_BLOCK, &held_, &before_);
}

HeldSignals::~HeldSignals() {
    sigprocmask(SIG_SETMASK, &before_, nullptr);
}

Result<int> HeldSignals::run(const std::vector<std::string>& command,
                             const std::filesystem::path& errors) {
    const auto child = SpawnSetup(before_, errors).spawn(command);
    if (!child) return child.error();
    bool interrupted = false;
    int status = 0;
    while (true) {
        const pid_t ended = ::waitpid(*child, &status, WNOHANG);
        TROUPE_ASSERT(ended >= 0);
        if (ended == *child) break;
        int signal = 0;
        TROUPE_ASSERT(sigwait(&held_, &signal) == 0);
        if (signal == SIGCHLD) continue;
        ::kill(*child, interrupted ? SIGKILL : SIGTERM);
        interrupted = true;
    }
    if (interrupted) return Error{ErrorKind::cancelled, command.front() + " was interrupted"};
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace troupe::tools
