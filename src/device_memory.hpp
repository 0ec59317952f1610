// SPDX-License-Identifier: Apache-2.0
/// Device memory that is freed in the order of streams, whichever of them are still there.
#pragma once

#include "stream_uses.hpp"

#include <runnel/config.hpp>

#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// What is to be freed, after which streams' work.
struct DeviceFree {
  void* pointer;
  int device;
  StreamUse own;  // the stream in whose order it is freed, if that is still there
  std::vector<StreamUse> others;
};
/// Frees it, ends the uses, and deletes the note.
void free_in_order(DeviceFree* note) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
