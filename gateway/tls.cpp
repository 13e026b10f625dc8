#include "gateway/tls.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/base/assert.hpp"
#include "runtime/base/log.hpp"

namespace troupe::gateway {
namespace {

// The oldest entry of OpenSSL's queue of errors in words; empties the queue.
std::string openssl_reason() {
    const char* reason = ERR_reason_error_string(ERR_get_error());
    ERR_clear_error();
    return reason != nullptr ? reason : "no reason given";
}

// OpenSSL's own error of a file that cannot be opened says less.
Result<void> check_readable(std::string_view what, const std::filesystem::path& path) {
    errno = 0;
    std::ifstream file(path);
    if (!file || file.peek() == std::ifstream::traits_type::eof())
        return Error{ErrorKind::io, fmt::format("cannot read the {} {}: {}", what, path.string(),
                                                errno != 0 ? std::strerror(errno) : "it is empty")};
    return {};
}

// For a key that is encrypted: notes it, and has no passphrase to give.
int no_passphrase(char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return 0;
}

Result<void> use_certificate(SSL_CTX* context, const std::filesystem::path& path) {
    if (auto readable = check_readable("certificate", path); !readable) return readable;
    if (SSL_CTX_use_certificate_chain_file(context, path.c_str()) != 1)
        return invalid_input(fmt::format("{} holds no certificate in PEM form ({})", path.string(),
                                         openssl_reason()));
    const X509* certificate = SSL_CTX_get0_certificate(context);
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        log::warn("the certificate in {} has expired: clients will refuse it", path.string());
    return {};
}

Result<void> use_key(SSL_CTX* context, const std::filesystem::path& path,
                     const std::filesystem::path& certificate) {
    if (auto readable = check_readable("private key", path); !readable) return readable;
    bool encrypted = false;
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(context, &encrypted);
    const bool used = SSL_CTX_use_PrivateKey_file(context, path.c_str(), SSL_FILETYPE_PEM) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
    if (used && SSL_CTX_check_private_key(context) == 1) return {};
    if (encrypted)
        return invalid_input(fmt::format(
            "the key in {} has a passphrase: give one without, readable by this user alone",
            path.string()));
    if (const auto error = ERR_peek_error(); ERR_GET_LIB(error) == ERR_LIB_X509) {
        ERR_clear_error();
        return invalid_input(fmt::format("the key in {} does not belong to the certificate in {}",
                                         path.string(), certificate.string()));
    }
    return invalid_input(
        fmt::format("{} holds no private key in PEM form ({})", path.string(), openssl_reason()));
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const {
    SSL_CTX_free(context);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const std::filesystem::path& certificate,
                                                           const std::filesystem::path& key) {
    ERR_clear_error();
    Context context(SSL_CTX_new(TLS_server_method()));
    TROUPE_ASSERT(context != nullptr, "out of memory");
    SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
    SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    if (auto used = use_certificate(context.get(), certificate); !used) return used.error();
    if (auto used = use_key(context.get(), key, certificate); !used) return used.error();
    return std::shared_ptr<const TlsContext>(new TlsContext(std::move(context)));
}

ssl_st* TlsContext::new_connection() const {
    ssl_st* connection = SSL_new(context_.get());
    TROUPE_ASSERT(connection != nullptr, "out of memory");
    return connection;
}

}  // namespace troupe::gateway
