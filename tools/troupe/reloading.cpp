#include "tools/troupe/reloading.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <system_error>
#include <utility>

#include "runtime/base/log.hpp"

namespace troupe::tools {
namespace {

constexpr auto as_tuple_awaitable = boost::asio::as_tuple(boost::asio::use_awaitable);

std::vector<std::filesystem::path> named(const std::vector<std::string>& names) {
    std::vector<std::filesystem::path> paths;
    for (const std::string& name : names)
        if (!name.empty()) paths.emplace_back(name);
    return paths;
}

}  // namespace

WatchedFiles::WatchedFiles(std::vector<std::filesystem::path> paths)
    : paths_(std::move(paths)), told_(look()), last_(told_) {}

bool WatchedFiles::changed() {
    auto now = look();
    const bool still = now == last_;
    last_ = std::move(now);
    if (!still || last_ == told_) return false;
    told_ = last_;
    return true;
}

std::vector<std::int64_t> WatchedFiles::look() const {
    std::vector<std::int64_t> seen;
    for (const auto& path : paths_) {
        std::error_code missing;
        const auto size = std::filesystem::file_size(path, missing);
        seen.push_back(missing ? 0 : static_cast<std::int64_t>(size));
        const auto time = std::filesystem::last_write_time(path, missing);
        seen.push_back(missing ? 0 : time.time_since_epoch().count());
    }
    return seen;
}

Reloading::Reloading(runtime::Lane& main, Files files)
    : main_(main),
      files_(std::move(files)),
      keys_(named({files_.keys})),
      certificate_(named({files_.certificate, files_.certificate_key})),
      hangup_(main.context()),
      timer_(main.context()) {
    if (!files_.keys.empty() || !files_.certificate.empty()) hangup_.add(SIGHUP);
}

void Reloading::start(gateway::Server& server) {
    if (files_.keys.empty() && files_.certificate.empty()) return;
    main_.spawn("reload on a signal", heed_signals(server));
    main_.spawn("reload on a change", heed_changes(server));
}

void Reloading::cancel() {
    cancelled_ = true;
    hangup_.cancel();
    timer_.cancel();
}

boost::asio::awaitable<void> Reloading::heed_signals(gateway::Server& server) {
    while (true) {
        const auto [error, signal] = co_await hangup_.async_wait(as_tuple_awaitable);
        if (error) co_return;
        reload_keys(server);
        reload_certificate(server);
    }
}

boost::asio::awaitable<void> Reloading::heed_changes(gateway::Server& server) {
    while (!cancelled_) {
        timer_.expires_after(std::chrono::seconds(1));
        co_await timer_.async_wait(as_tuple_awaitable);
        if (cancelled_) co_return;
        if (keys_.changed()) reload_keys(server);
        if (certificate_.changed()) reload_certificate(server);
    }
}

void Reloading::reload_keys(gateway::Server& server) const {
    if (files_.keys.empty()) return;
    auto keys = gateway::KeyRing::load(files_.keys);
    if (!keys) return log::error("the keys stay as they were: {}", keys.error().message);
    log::info("the keys were read again");
    server.replace_keys(std::move(*keys));
}

void Reloading::reload_certificate(gateway::Server& server) const {
    if (files_.certificate.empty()) return;
    auto tls = gateway::TlsContext::load(files_.certificate, files_.certificate_key);
    if (!tls) return log::error("the certificate stays as it was: {}", tls.error().message);
    log::info("the certificate was read again");
    server.replace_certificate(std::move(*tls));
}

}  // namespace troupe::tools
