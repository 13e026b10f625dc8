// The TLS of Asio, compiled once for the whole program.
#include <boost/asio/ssl/impl/src.hpp>
