// For the tests of attention: sequences whose keys and values lie in pages in no order, random, on
// the host and on the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/kernels/kv_pages.hpp"
#include "model/half.hpp"
#include "tests/gpu/kernels_support.hpp"

namespace troupe::test {

using gpu::DeviceBuffer;
using gpu::KvForm;
using gpu::KvPages;

inline constexpr std::uint32_t kPages = 128;
inline constexpr std::uint32_t kSlots = 3;
inline constexpr gpu::PageTableShape kShape{40, 0};

struct PagedRows {
    std::uint32_t heads, kv_heads, length;
    KvForm form;
    Random random;
    std::vector<std::uint32_t> page_table;
    std::vector<std::byte> keys, values;

    PagedRows(std::uint32_t heads_, std::uint32_t kv_heads_, std::uint32_t length_, KvForm form_)
        : heads(heads_),
          kv_heads(kv_heads_),
          length(length_),
          form(form_),
          random(heads_ * length_) {
        std::vector<std::uint32_t> pages(kPages);
        for (std::uint32_t i = 0; i < kPages; ++i)
            pages[i] = i;
        std::shuffle(pages.begin(), pages.end(), random);
        page_table.assign(pages.begin(), pages.begin() + kSlots * kShape.width());
        keys = random_blocks();
        values = random_blocks();
    }
    std::vector<std::byte> random_blocks() {
        const std::size_t block_bytes = gpu::kv_block_bytes(form, length);
        std::vector<std::byte> blocks(kPages * kv_heads * block_bytes);
        for (std::size_t at = 0; at < blocks.size(); at += block_bytes) {
            const std::size_t steps = gpu::kv_step_bytes(form);
            const std::vector<float> floats = random_floats(block_bytes / 2, random);
            for (std::size_t i = 0; i < steps / sizeof(float); ++i) {
                const float step = std::abs(floats[i]) / 100;
                std::memcpy(blocks.data() + at + 4 * i, &step, sizeof step);
            }
            for (std::size_t i = steps; i < block_bytes; i += 2) {
                const std::uint16_t bits = form == KvForm::int8
                                               ? static_cast<std::uint16_t>(random())
                                               : model::float_to_half(floats[i / 2]);
                std::memcpy(blocks.data() + at + i, &bits, sizeof bits);
            }
        }
        return blocks;
    }
    KvPages host() {
        return {keys.data(), values.data(), page_table.data(), kShape, form, kv_heads, length};
    }
};

struct DevicePages {
    DeviceBuffer<std::byte> keys, values;
    DeviceBuffer<std::uint32_t> page_table;
    KvPages view;

    explicit DevicePages(const PagedRows& rows)
        : keys(DeviceBuffer<std::byte>::upload(rows.keys)),
          values(DeviceBuffer<std::byte>::upload(rows.values)),
          page_table(DeviceBuffer<std::uint32_t>::upload(rows.page_table)),
          view{keys.data(), values.data(), page_table.data(), kShape,
               rows.form,   rows.kv_heads, rows.length} {}
};

}  // namespace troupe::test
