// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// Handles with which another process of this machine opens an event or memory.
#pragma once

#include <runnel/config.hpp>

#include <array>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Identifies an event for other processes: `Event::ipc_handle()` returns it,
/// `Event::from_ipc_handle()` opens the event. Its bytes may be sent through a pipe, a socket or a
/// file. Accept handles only from processes that you trust.
struct IpcEventHandle {
  std::array<std::byte, 128> bytes{};  ///< opaque: to be copied only
  friend bool operator==(const IpcEventHandle&, const IpcEventHandle&) = default;
};

/// Identifies device memory for other processes: `SharedBuffer::ipc_handle()` returns it,
/// `SharedBuffer::from_ipc_handle()` opens the memory. It is sent like an IpcEventHandle.
struct IpcMemoryHandle {
  std::array<std::byte, 128> bytes{};  ///< opaque: to be copied only
  friend bool operator==(const IpcMemoryHandle&, const IpcMemoryHandle&) = default;
};

}  // namespace runnel::inline RUNNEL_ABI
