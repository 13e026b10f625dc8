// The pages of the KV cache: one mapping, touched lazily, laid out [page][layer][keys, then
// values], the inside of which is the attention kernels' business. Who owns which page is not known
// here. Used by the compute threads without locks: the plan guarantees that nobody writes what
// another reads in the same step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/step.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

struct KvShape {
    std::uint32_t layers = 0;
    std::size_t key_bytes = 0;    // of a page in one layer, a multiple of 64
    std::size_t value_bytes = 0;  // likewise

    [[nodiscard]] std::size_t layer_bytes() const { return key_bytes + value_bytes; }
    [[nodiscard]] std::size_t page_bytes() const { return layers * layer_bytes(); }
};

class KvPool {
 public:
    // Reserves `pages` pages, zero when first touched. Error: out_of_memory, naming what was
    // wanted.
    [[nodiscard]] static Result<KvPool> create(const KvShape& shape, std::uint32_t pages,
                                               bool huge_pages);
    KvPool(KvPool&& other) noexcept;
    KvPool& operator=(KvPool&& other) noexcept;
    ~KvPool();

    [[nodiscard]] const KvShape& shape() const { return shape_; }
    [[nodiscard]] std::uint32_t pages() const { return pages_; }

    // The keys of page 0 in this layer; the values key_bytes further on, and page p's
    // p * page_bytes().
    [[nodiscard]] std::byte* layer_base(std::uint32_t layer) const {
        return memory_ + layer * shape_.layer_bytes();
    }

    // Copies every layer of a page. All positions go along, as the layout interleaves them; those
    // beyond the copied tokens are written before they are read.
    void copy_page(model::PageId from, model::PageId to);

 private:
    KvPool(const KvShape& shape, std::uint32_t pages, std::byte* memory)
        : shape_(shape), pages_(pages), memory_(memory) {}

    KvShape shape_;
    std::uint32_t pages_ = 0;
    std::byte* memory_ = nullptr;
};

}  // namespace troupe::cpu
