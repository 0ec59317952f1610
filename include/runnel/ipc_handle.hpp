// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// Handles by which another process of this machine opens an event or memory.
#pragma once

#include <runnel/config.hpp>

#include <array>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Names an event for other processes: `Event::ipc_handle()` makes it, `Event::from_ipc_handle()`
/// opens it. Its bytes may be sent through a pipe, a socket or a file. Take handles only from
/// processes that you trust.
struct IpcEventHandle {
  std::array<std::byte, 128> bytes{};  ///< to be copied, not to be read
  friend bool operator==(const IpcEventHandle&, const IpcEventHandle&) = default;
};

/// Names device memory for other processes: `SharedBuffer::ipc_handle()` makes it,
/// `SharedBuffer::from_ipc_handle()` opens it. It is sent as an IpcEventHandle is.
struct IpcMemoryHandle {
  std::array<std::byte, 128> bytes{};  ///< to be copied, not to be read
  friend bool operator==(const IpcMemoryHandle&, const IpcMemoryHandle&) = default;
};

}  // namespace runnel::inline RUNNEL_ABI
