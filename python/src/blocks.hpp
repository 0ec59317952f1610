// SPDX-License-Identifier: Apache-2.0
// Device memory as a Python object.
#pragma once

#include "references.hpp"
#include "types.hpp"

#include <runnel/host_registration.hpp>
#include <runnel/memory.hpp>
#include <runnel/stream.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace binding {

/// Elements without gaps in device memory: an owned block, a part of one, or a chunk of overlap(),
/// which ends with its call.
class Block {
 public:
  struct Memory {
    // Null for a chunk, and once closed. Copies that are under way have a share.
    std::shared_ptr<runnel::DeviceBuffer<std::byte>> owned;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::atomic<bool> is_live = true;
    std::atomic<int> exports = 0;  // arrays and views of other libraries
  };
  Block(std::shared_ptr<Memory> memory, runnel::StreamRef stream);

  [[nodiscard]] void* data() const;
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] runnel::StreamRef stream() const noexcept { return stream_; }

  std::size_t offset = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements; empty in C's order
  const NamedType* type = bytes_type();
  std::shared_ptr<Memory> memory;
  bool is_bytes = false;  // of whatever type and shape: of a source or a sink that is a function

 private:
  runnel::StreamRef stream_;
  int device_;
};

/// A memoryview, whose consumers are counted.
[[nodiscard]] nb::object view_of(std::shared_ptr<Block::Memory> memory, bool is_read_only);
/// The block, or null for another object.
[[nodiscard]] const Block* as_block(nb::handle object);
/// Makes a block of bytes, or of elements of that type.
[[nodiscard]] Block make_block(std::size_t bytes, runnel::StreamRef stream);
/// Sets type and shape. `order` has the dimensions from the one with the largest step to the one
/// with the smallest, or is empty, as for C's order. @throws ValueError if they do not fit
void shape_block(Block& block, const std::string& type_name, std::vector<std::int64_t> shape,
                 const std::vector<std::size_t>& order = {});
void bind_blocks(nb::module_& module);

}  // namespace binding
