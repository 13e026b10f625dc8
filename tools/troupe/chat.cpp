// troupe chat: a conversation in the terminal. Ctrl-C stops an answer; at the prompt it leaves.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <memory>

#include "tools/troupe/command.hpp"
#include "tools/troupe/decoding_flags.hpp"
#include "tools/troupe/local_engine.hpp"
#include "tools/troupe/speculation_flags.hpp"

namespace troupe::tools {
namespace {

struct ChatFlags {
    BackendFlags backend;
    SpeculationFlags speculation;
    DecodingFlags decoding;
    std::string system;
};

constexpr const char* kHelp =
    "  /help            this\n"
    "  /new             forget the conversation\n"
    "  /system TEXT     set the system message and begin anew\n"
    "  /retry           answer the last message again, with another seed\n"
    "  /quit            leave (also Ctrl-D)\n"
    "  Ctrl-C           stop the answer\n";

// The answer that is running, for the signal handler: a StopFlag is one atomic, so raising it there
// is allowed.
std::atomic<runtime::StopFlag*> answering{nullptr};

void on_interrupt(int) {
    if (auto* flag = answering.load())
        flag->request(runtime::StopReason::cancelled);
    else
        _exit(exit_ok);
}

class Conversation {
 public:
    Conversation(const LoadedModel& loaded, LocalEngine& engine, model::DecodingParams params,
                 std::string system)
        : loaded_(loaded), engine_(engine), params_(std::move(params)) {
        begin(std::move(system));
    }

    void begin(std::string system) {
        messages_.clear();
        if (!system.empty()) add("system", std::move(system));
    }

    void ask(std::string text) {
        add("user", std::move(text));
        answer();
    }

    void retry() {
        if (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
        if (messages_.empty() || messages_.back().role != "user") {
            fmt::print("there is nothing to answer yet\n");
            return;
        }
        ++params_.seed;
        answer();
    }

 private:
    void add(const char* role, std::string content) {
        model::ChatMessage message;
        message.role = role;
        message.content = std::move(content);
        messages_.push_back(std::move(message));
    }

    void answer() {
        const auto rendered = loaded_.chat_template->render(messages_);
        if (!rendered) {
            fmt::print("{}\n", rendered.error().message);
            return;
        }
        std::vector<model::TokenId> tokens;
        model::encode_chat(*loaded_.tokenizer, *rendered, tokens);
        const auto stop = runtime::StopFlag::make();
        answering = stop.get();
        const auto answer = engine_.generate(
            std::move(tokens), params_,
            [](std::string_view text) {
                std::fwrite(text.data(), 1, text.size(), stdout);
                std::fflush(stdout);
            },
            stop);
        answering = nullptr;
        if (answer.error()) {
            fmt::print("{}\n", answer.error()->message);
            messages_.pop_back();
            return;
        }
        const double seconds = static_cast<double>(answer.timings().decode_ns) / 1e9;
        const bool cut = answer.reason() == actors::FinishReason::length;
        const bool stopped = answer.reason() == actors::FinishReason::cancelled;
        fmt::print("\n\033[2m[{} tokens, {:.0f} a second{}]\033[0m\n", answer.tokens(),
                   seconds > 0 ? answer.tokens() / seconds : 0.0,
                   cut       ? ", cut at the limit"
                   : stopped ? ", stopped"
                             : "");
        add("assistant", answer.text());
    }

    const LoadedModel& loaded_;
    LocalEngine& engine_;
    model::DecodingParams params_;
    std::vector<model::ChatMessage> messages_;
};

// False where the conversation ends.
bool take_line(Conversation& conversation, const std::string& line) {
    if (line.empty()) return true;
    if (line == "/quit" || line == "/exit") return false;
    if (line == "/help")
        fmt::print("{}", kHelp);
    else if (line == "/new")
        conversation.begin("");
    else if (line == "/retry")
        conversation.retry();
    else if (line.starts_with("/system "))
        conversation.begin(line.substr(8));
    else if (line.starts_with('/'))
        fmt::print("there is no {}; /help lists what there is\n", line);
    else
        conversation.ask(line);
    return true;
}

int chat(const ChatFlags& flags) {
    auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    const auto speculation = prepare_speculation(flags.speculation, *loaded);
    if (!speculation) return report(speculation.error());
    const auto params = decoding_params(flags.decoding, loaded->tokenizer->vocabulary_size());
    if (!params) return report(params.error());
    const auto backend = make_backend(*loaded, flags.backend);
    if (!backend) return report(backend.error());
    LocalEngine engine(*loaded, **backend, *speculation);
    Conversation conversation(*loaded, engine, *params, flags.system);

    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    const bool person = isatty(STDIN_FILENO) != 0;
    if (person) fmt::print("{}; /help lists what you can do\n", loaded->id);
    std::string line;
    while (true) {
        if (person) fmt::print("\n\033[1m> \033[0m");
        std::fflush(stdout);
        if (!std::getline(std::cin, line) || !take_line(conversation, line)) break;
    }
    return exit_ok;
}

}  // namespace

void add_chat(Command& app, Run& run) {
    auto command = app.add_subcommand("chat", "Talk to a model in the terminal");
    const auto flags = std::make_shared<ChatFlags>();
    add_backend_flags(command, flags->backend);
    add_speculation_flags(command, flags->speculation);
    command.add("--system", flags->system, "the system message");
    add_decoding_flags(command, flags->decoding);
    command.when_chosen([flags, &run] { run = [flags] { return chat(*flags); }; });
}

}  // namespace troupe::tools
