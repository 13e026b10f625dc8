// The server's certificate and its private key, checked and ready to speak TLS 1.2 and 1.3 with.
// Immutable once loaded, safe from every thread. A reload makes another one; a connection keeps the
// one that it began with.
#pragma once

#include <filesystem>
#include <memory>

#include "runtime/base/result.hpp"

struct ssl_ctx_st;
struct ssl_st;

namespace troupe::gateway {

class TlsContext {
 public:
    // Two PEM files: the certificate, followed by those that vouch for it, and its key, without a
    // passphrase. The error names the file and says what is wrong with it.
    [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> load(
        const std::filesystem::path& certificate, const std::filesystem::path& key);

    // OpenSSL's state of one connection; the caller owns it.
    [[nodiscard]] ssl_st* new_connection() const;

 private:
    struct Free {
        void operator()(ssl_ctx_st* context) const;
    };
    using Context = std::unique_ptr<ssl_ctx_st, Free>;

    explicit TlsContext(Context context) : context_(std::move(context)) {}

    Context context_;
};

}  // namespace troupe::gateway
