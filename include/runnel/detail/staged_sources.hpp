// SPDX-License-Identifier: Apache-2.0
/// When staged copies have read their sources, for a binding whose users ask.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// The sources of copies to a device that one thread has staged in a row.
struct StagedSources {
  std::size_t bytes = 0;                  // of these sources
  const std::uint32_t* filled = nullptr;  // counts the pieces that have been read; never freed
  std::uint32_t end = 0;                  // its number when all of these have been read

  /// Whether none of these sources will be read any more. Requires: `bytes` is not 0, and no fork
  /// since.
  [[nodiscard]] bool are_read() const noexcept;
};

/// Where the calling thread's staged copies to a device note their sources; null (the default):
/// nowhere.
[[nodiscard]] StagedSources*& noted_sources() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
