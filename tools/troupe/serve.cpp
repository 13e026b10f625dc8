// troupe serve: the server. Builds the threads and what runs on them, in order, and takes them down
// in the reverse order when a signal comes.
#include <fmt/format.h>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "actors/engine.hpp"
#include "actors/hub.hpp"
#include "actors/limits.hpp"
#include "gateway/server.hpp"
#include "gateway/wire_response.hpp"
#include "model/load_progress.hpp"
#include "runtime/base/log.hpp"
#include "runtime/offload.hpp"
#include "runtime/supervisor.hpp"
#include "runtime/thread.hpp"
#include "storage/storage.hpp"
#include "tools/troupe/command.hpp"
#include "tools/troupe/model_loading.hpp"
#include "tools/troupe/reloading.hpp"
#include "tools/troupe/speculation_flags.hpp"

namespace troupe::tools {
namespace {

struct ServeFlags {
    BackendFlags backend;
    SpeculationFlags speculation;
    gateway::ServerSettings server;
    std::string alias;
    std::string keys_path;
    std::string certificate_path;
    std::string certificate_key_path;
    std::string data_dir;
    std::uint32_t keep_days = 30;
    std::uint64_t keep_bytes = std::uint64_t{1} << 30;
    std::uint32_t waiting_max = actors::limits::kWaitingMax;
    std::int64_t step_latency_ms = 40;
    std::uint32_t drain_s = 30;
    std::uint32_t slow_client_s = 30;
    std::uint32_t heartbeat_s = 20;
};

void report_failure(const runtime::LaneFailure& failure) {
    log::error("{} on {} failed: {}", failure.coroutine, failure.lane, failure.what);
}

actors::EngineSettings engine_settings(const ServeFlags& flags, const LoadedModel& loaded) {
    actors::EngineSettings settings;
    const auto ends = loaded.tokenizer->end_tokens();
    settings.scheduler.end_tokens.assign(ends.begin(), ends.end());
    settings.scheduler.tokenizer = loaded.tokenizer.get();
    settings.scheduler.waiting_max = flags.waiting_max;
    settings.scheduler.step_latency_ms = flags.step_latency_ms;
    return settings;
}

// What "system_fingerprint" says: changes exactly when answers may change.
std::string fingerprint_of(const model::BackendInfo& info) {
    const auto digest = gateway::sha256(info.fingerprint);
    return fmt::format("fp_{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2],
                       digest[3], digest[4], digest[5]);
}

// What /v1/models tells beyond OpenAI's fields.
std::string facts_json(const model::BackendInfo& info) {
    return boost::json::serialize(
        boost::json::object{{"backend", info.kind},
                            {"arithmetic", info.arithmetic},
                            {"vocabulary_size", info.vocabulary_size},
                            {"weight_bytes", info.weight_bytes},
                            {"kv_type", info.kv_type},
                            {"kv_bytes_per_token", info.kv_bytes_per_token},
                            {"window", info.window.tokens},
                            {"sinks", info.window.sinks}});
}

// Everything that runs, from the first thread to the last. Members are destroyed in reverse order,
// after all lanes have been joined.
class Service {
 public:
    // `database` where responses are kept on the disk.
    Service(ServeFlags flags, std::optional<storage::ResponseDatabase> database)
        : flags_(std::move(flags)),
          main_("main", clock_, report_failure),
          io_("io-0", clock_, report_failure),
          engine_lane_("engine", clock_, report_failure),
          executor_lane_("executor", clock_, report_failure),
          offload_lane_("offload-0", clock_, report_failure),
          storage_lane_("storage", clock_, report_failure),
          storage_inbox_(actors::limits::storage_mailbox(1)),
          offload_({&offload_lane_}, actors::limits::kRequestsLiveMax),
          reloading_(main_, {.keys = flags_.keys_path,
                             .certificate = flags_.certificate_path,
                             .certificate_key = flags_.certificate_key_path}),
          supervisor_(main_, policy(), [this](runtime::SupervisorAction a) { perform(a); }) {
        if (database) storage_.emplace(std::move(*database), retention());
    }

    // Until a signal or a fault ends it.
    int run() {
        auto server = gateway::Server::listen(io_, flags_.server, progress_);
        if (!server) return report(server.error());
        server_ = std::move(*server);
        io_.start();
        server_->start();
        if (auto started = start_engine(); !started) {
            const int code = report(started.error());
            io_.stop();
            io_.join();
            return code;
        }
        main_.spawn("supervisor", supervisor_.run());
        main_.spawn("signals", supervisor_.watch_signals());
        reloading_.start(*server_);
        main_.run();
        return static_cast<int>(supervisor_.exit_code());
    }

 private:
    runtime::SupervisorPolicy policy() const {
        runtime::SupervisorPolicy policy;
        policy.drain = std::chrono::seconds(flags_.drain_s);
        return policy;
    }

    storage::Retention retention() const {
        return {.age_s = std::int64_t{flags_.keep_days} * 24 * 3600,
                .bytes = static_cast<std::int64_t>(flags_.keep_bytes)};
    }

    actors::HubSettings hub_settings() {
        actors::HubSettings settings;
        settings.write_response = [this](const actors::Response& response) {
            std::string json;
            gateway::append_response(json, response, *served_);
            return json;
        };
        if (storage_) settings.storage = runtime::Address(storage_inbox_);
        return settings;
    }

    Result<void> start_engine() {
        const auto started = clock_.now();
        auto loaded = load_model(flags_.backend.model);
        if (!loaded) return loaded.error();
        loaded_ = std::move(*loaded);
        const auto speculation = prepare_speculation(flags_.speculation, loaded_);
        if (!speculation) return speculation.error();
        auto backend = make_backend(loaded_, flags_.backend, &progress_);
        if (!backend) return backend.error();
        backend_ = std::move(*backend);
        const auto& info = backend_->info();
        inbox_.emplace(actors::limits::hub_mailbox(info.context_length));
        auto settings = engine_settings(flags_, loaded_);
        settings.scheduler.speculation = *speculation;
        engine_.emplace(std::move(settings), *backend_, engine_lane_, executor_lane_,
                        std::vector{runtime::Address<actors::HubMessage>(*inbox_)},
                        [this](const std::string& message) {
                            supervisor_.address().send(runtime::EngineFailed{message});
                        });
        served_.emplace(served_model(info));
        hub_.emplace(hub_settings(), engine_->scheduler(), actors::offload_from(io_, offload_));
        engine_->start();
        io_.spawn("hub", actors::run_hub(io_, *hub_, *inbox_));
        offload_lane_.start();
        if (storage_) start_storage();
        engine_lane_.start();
        executor_lane_.start();
        server_->ready({*served_, *hub_, engine_->stats(), {&io_, &engine_lane_}});
        announce(info, clock_.now() - started);
        return {};
    }

    void start_storage() {
        storage_lane_.spawn("storage",
                            storage::run_storage(storage_lane_, *storage_, storage_inbox_,
                                                 {runtime::Address<actors::HubMessage>(*inbox_)},
                                                 actors::system_unix_seconds));
        storage_lane_.start();
    }

    gateway::ServedModel served_model(const model::BackendInfo& info) const {
        gateway::WireLimits limits;
        limits.heartbeat_ms = flags_.server.heartbeat.count() * 1000;
        return {.tokenizer = *loaded_.tokenizer,
                .chat_template = *loaded_.chat_template,
                .id = flags_.alias.empty() ? loaded_.id : flags_.alias,
                .aliases = {loaded_.id},
                .context_length = info.context_length,
                .system_fingerprint = fingerprint_of(info),
                .created_at = actors::system_unix_seconds(),
                .facts_json = facts_json(info),
                .defaults = {},
                .session_limits = {},
                .limits = limits};
    }

    void announce(const model::BackendInfo& info, runtime::Duration took) const {
        log::info(
            "{}: {} ({}), context {}{}, KV cache in {} for {} tokens ({:.0f} MB), loaded in "
            "{:.2f} s",
            served_->id, info.kind, info.arithmetic, info.context_length,
            info.window.bounded() ? fmt::format(" (a window of {} and {} sinks)",
                                                info.window.tokens, info.window.sinks)
                                  : "",
            info.kv_type, info.pages_total * model::kPageTokens,
            static_cast<double>(info.pages_total) * model::kPageTokens *
                static_cast<double>(info.kv_bytes_per_token) / 1e6,
            std::chrono::duration<double>(took).count());
        if (flags_.server.keys.empty())
            log::info(
                "no keys are set, so only this machine can connect (--api-keys changes that)");
        std::printf("troupe is ready: %s\n", server_->address().c_str());
        std::fflush(stdout);
    }

    // What the supervisor asks for, on the main lane.
    void perform(runtime::SupervisorAction action) {
        using runtime::SupervisorAction;
        log::debug("supervisor: {}", runtime::to_string(action));
        switch (action) {
            case SupervisorAction::drain_sessions:
                inbox_->send_control(actors::HubShutdown{});
                server_->drain([this] { supervisor_.address().send(runtime::SessionsDrained{}); });
                break;
            case SupervisorAction::cancel_sessions:
                engine_->shutdown(clock_.now());
                break;
            case SupervisorAction::stop_engine:
                engine_->shutdown(clock_.now());
                engine_lane_.finish();
                executor_lane_.finish();
                engine_lane_.join();
                executor_lane_.join();
                supervisor_.address().send(runtime::EngineStopped{});
                break;
            case SupervisorAction::join:
                server_->stop();
                inbox_->close();
                offload_lane_.stop();
                io_.finish();
                io_.join();
                offload_lane_.join();
                storage_inbox_.close();
                storage_lane_.finish();
                storage_lane_.join();
                reloading_.cancel();
                main_.finish();
                break;
            case SupervisorAction::exit_now:
                log::warn("leaving at once");
                std::_Exit(static_cast<int>(supervisor_.exit_code()));
        }
    }

    const ServeFlags flags_;
    runtime::SteadyClock clock_;
    model::LoadProgress progress_;
    runtime::NamedThread main_;
    runtime::NamedThread io_;
    runtime::NamedThread engine_lane_;
    runtime::NamedThread executor_lane_;
    runtime::NamedThread offload_lane_;
    runtime::NamedThread storage_lane_;
    runtime::Mailbox<actors::StorageMessage> storage_inbox_;
    std::optional<storage::Storage> storage_;
    runtime::Offload offload_;
    Reloading reloading_;
    runtime::Supervisor supervisor_;
    LoadedModel loaded_;
    std::unique_ptr<model::Backend> backend_;
    std::optional<runtime::Mailbox<actors::HubMessage>> inbox_;
    std::optional<actors::Engine> engine_;
    std::optional<actors::SessionHub> hub_;
    std::optional<gateway::ServedModel> served_;
    std::unique_ptr<gateway::Server> server_;
};

int serve(ServeFlags flags) {
    if (!flags.certificate_path.empty()) {
        auto tls = gateway::TlsContext::load(flags.certificate_path, flags.certificate_key_path);
        if (!tls) return report(tls.error());
        flags.server.tls = std::move(*tls);
    }
    if (!flags.keys_path.empty()) {
        auto keys = gateway::KeyRing::load(flags.keys_path);
        if (!keys) return report(keys.error());
        flags.server.keys = std::move(*keys);
    }
    flags.server.write_timeout = std::chrono::seconds(flags.slow_client_s);
    flags.server.heartbeat = std::chrono::seconds(flags.heartbeat_s);
    std::optional<storage::ResponseDatabase> database;
    if (!flags.data_dir.empty()) {
        auto opened = storage::ResponseDatabase::open(flags.data_dir);
        if (!opened) return report(opened.error());
        gateway::set_principal_secret(opened->secret());
        database.emplace(std::move(*opened));
    }
    Service service(std::move(flags), std::move(database));
    return service.run();
}

}  // namespace

void add_serve(Command& app, Run& run) {
    auto command =
        app.add_subcommand("serve", "Serve a model over WebSocket and HTTP, with a page");
    const auto flags = std::make_shared<ServeFlags>();
    auto& server = flags->server;
    add_backend_flags(command, flags->backend);
    add_speculation_flags(command, flags->speculation);
    const auto group = "Serving";
    const auto add = [&](const char* name, auto& value, const char* what) {
        return command.add(name, value, what).group(group).shows_default();
    };
    add("--host", server.host, "address to listen on; others than this machine's own need keys");
    add("--port", server.port, "port to listen on; 0: any free one");
    add("--api-keys", flags->keys_path, "file of API keys, one NAME KEY a line");
    auto certificate = add("--tls-cert", flags->certificate_path,
                           "PEM file of the certificate and those that vouch for it: serve https");
    auto key = add("--tls-key", flags->certificate_key_path, "PEM file of its private key");
    certificate.needs(key);
    key.needs(certificate);
    add("--alias", flags->alias, "the model's name for clients, instead of the file's");
    add("--allow-host", server.allow.hosts, "serve requests for this host name, too");
    add("--allow-origin", server.allow.origins, "let pages of this origin use the server");
    add("--trusted-proxy", server.trusted_proxies,
        "address of a proxy that tells in X-Forwarded-For whom it speaks for");
    add("--max-waiting", flags->waiting_max, "requests that may wait; more are refused")
        .within(0, 16'000);
    add("--step-latency-ms", flags->step_latency_ms, "aim for the gap between tokens")
        .within(1, 10'000);
    add("--sockets-per-client", server.sockets_per_client_max,
        "WebSockets of one key or one browser");
    add("--slow-client-seconds", flags->slow_client_s,
        "how long a client may take nothing of an answer before it is cut off")
        .within(1, 3600);
    add("--heartbeat-seconds", flags->heartbeat_s,
        "after so long a silence a WebSocket client is pinged, after twice that given up")
        .within(1, 3600);
    add("--data-dir", flags->data_dir, "folder where responses are kept; without it, in memory");
    add("--keep-days", flags->keep_days, "how long responses are kept there").within(1, 36'500);
    add("--keep-bytes", flags->keep_bytes, "how much of them, for example 1GB").bytes();
    add("--drain-seconds", flags->drain_s, "how long answers may go on after SIGTERM");
    command.when_chosen([flags, &run] { run = [flags] { return serve(*flags); }; });
}

}  // namespace troupe::tools
