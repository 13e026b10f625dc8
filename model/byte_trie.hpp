// Byte strings -> token ids, for finding every one that begins at a place of a text. Built once,
// only read afterwards. A step down is one look-up in a hash table.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "model/flat_table.hpp"
#include "model/token.hpp"

namespace troupe::model {

class ByteTrie {
 public:
    // `bytes_max`: at least the bytes of all keys together.
    explicit ByteTrie(std::size_t bytes_max = 0) : children_(bytes_max) {}

    // Keeps the first id of a key that comes again. `key` must not be empty.
    void insert(std::string_view key, TokenId id) {
        TokenId node = 0;
        for (const char byte : key) {
            const TokenId child = child_of(node, byte);
            if (child >= 0) {
                node = child;
                continue;
            }
            const auto made = static_cast<TokenId>(ids_.size());
            children_.insert(node, static_cast<unsigned char>(byte), {0, made});
            ids_.push_back(-1);
            node = made;
        }
        TokenId& kept = ids_[static_cast<std::size_t>(node)];
        if (kept < 0) kept = id;
    }

    // Calls `visit(length, id)` for each key that `text` begins with, shorter ones first.
    template <class Visit>
    void for_each_prefix(std::string_view text, const Visit& visit) const {
        TokenId node = 0;
        for (std::size_t i = 0; i < text.size(); ++i) {
            node = child_of(node, text[i]);
            if (node < 0) return;
            const TokenId id = ids_[static_cast<std::size_t>(node)];
            if (id >= 0) visit(i + 1, id);
        }
    }

 private:
    [[nodiscard]] TokenId child_of(TokenId node, char byte) const {
        return children_.find(node, static_cast<unsigned char>(byte)).result;
    }

    MergeTable children_;           // node, byte -> node
    std::vector<TokenId> ids_{-1};  // of each node; -1: no key ends there
};

}  // namespace troupe::model
