// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_copies
/// Settings for copies of pageable memory, which threads of runnel stage through pinned memory
/// (`Pageable::stage`). The size from which copies are staged is no setting: 256 KiB, or less if
/// the stream has work ahead.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// How staged copies are carried out. The environment (RUNNEL_STAGING_WORKERS,
/// RUNNEL_STAGING_CHUNK, RUNNEL_STAGING_MEMORY) fills in what is left 0. A copy has at most 256
/// pieces: a larger copy uses larger pieces, as long as 8 of them fit half of `memory`.
struct StagingOptions {
  /// Threads that move bytes between pageable and pinned memory, at most 64 (0 = three quarters of
  /// the cores, 1 to 12, default).
  int workers = 0;
  /// Bytes of the largest piece, 512 KiB to 1 GiB, rounded down to a power of 2 (0 = 8 MiB,
  /// default). Small copies use smaller pieces.
  std::size_t chunk = 0;
  /// Bytes of pinned memory for all streams together (0 = 512 MiB, default). Beyond that, or
  /// without memory, a stream gets smaller pieces.
  std::size_t memory = 0;
};

/// The settings and the pinned memory of staged copies, for the whole process. All members throw
/// errc::forked in a forked child.
class Staging {
 public:
  Staging() = delete;  ///< there is one set of settings; its functions are static

  /// Sets the options. Requires: no copy has been staged yet.
  /// @throws errc::not_permitted if a copy has been staged, errc::invalid_argument for negative
  /// workers
  static void set_options(const StagingOptions& options);
  /// The options in force, with numbers in place of zeros.
  [[nodiscard]] static StagingOptions options();

  /// Gives up the pinned memory that no staged copy is using: a thread of the library gives it back
  /// to the runtime, for which the call waits at most 0.1 s. The next staged copy allocates its own
  /// again.
  static void trim();
};

}  // namespace runnel::inline RUNNEL_ABI
