// SPDX-License-Identifier: Apache-2.0
/// Memory that another process can map. It is an anonymous file, so that nothing remains when the
/// processes end, in whatever way. The other process opens it through the first one's
/// /proc/<pid>/fd, which the system allows to processes of the same user.
#pragma once

#include "backend.hpp"

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::host {

class SharedMemory {
 public:
  SharedMemory() noexcept = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Creates zeroed memory.
  /// @throws std::bad_alloc, also if the process has too many open files
  [[nodiscard]] static SharedMemory make(std::size_t bytes);
  /// Maps another process's memory. Returns errc::invalid_handle if it does not exist any more.
  [[nodiscard]] static backend::status open(SharedMemory& memory, const backend::IpcBytes& handle);

  /// Requires: make() has created the memory.
  void write_handle(backend::IpcBytes& handle) const noexcept;
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }
  /// Whether another process has created it.
  [[nodiscard]] bool is_opened() const noexcept { return data_ != nullptr && file_ < 0; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

}  // namespace runnel::inline RUNNEL_ABI::host
