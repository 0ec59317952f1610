// SPDX-License-Identifier: Apache-2.0
/// The content of the handles that are sent to other processes.
#pragma once

#include "backend.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

enum class IpcKind : uint32_t { event = 1, memory = 2 };

struct IpcContent {
  uint64_t layout;           // of this struct, so that another version is rejected
  uint64_t process;          // identifies the process that made the handle
  uint64_t bytes;            // of the memory
  unsigned char device[16];  // the device's uuid: ordinals differ between processes
  backend::IpcBytes native;
  IpcKind kind;
  uint32_t check;  // of all bytes before it
};

using IpcHandleBytes = std::array<std::byte, 128>;

/// Makes a handle. Requires: `native` and `bytes` of the content are set.
[[nodiscard]] IpcHandleBytes seal_handle(IpcContent content, IpcKind kind, int device,
                                         const char* operation);
/// Reads a handle of another process. `device` is set to this process's ordinal of the device.
/// @throws errc::invalid_argument, errc::invalid_device
[[nodiscard]] IpcContent read_handle(const IpcHandleBytes& handle, IpcKind kind, int& device,
                                     const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
