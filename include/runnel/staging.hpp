// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_copies
/// Settings for staged copies: threads of runnel copy pageable memory through pinned memory
/// (`Pageable::stage`). The size from which copies are staged cannot be set: it is 256 KiB, or less
/// if the stream has pending work.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Options of staged copies. The environment variables RUNNEL_STAGING_WORKERS, RUNNEL_STAGING_CHUNK
/// and RUNNEL_STAGING_MEMORY replace values of 0. A copy is divided into at most 256 pieces: a
/// larger copy uses larger pieces, as long as 8 of them fit into half of `memory`.
struct StagingOptions {
  /// The number of threads that move bytes between pageable and pinned memory, at most 64 (0 =
  /// three quarters of the cores, 1 to 12, default).
  int workers = 0;
  /// The size of the largest piece in bytes, 512 KiB to 1 GiB, rounded down to a power of 2 (0 = 16
  /// MiB, default). Small copies use smaller pieces, and many copies in a row pieces of twice this.
  std::size_t chunk = 0;
  /// Bytes of pinned memory for all streams together (0 = 512 MiB, default). When it is used up, or
  /// cannot be allocated, copies use smaller pieces. A stream that finds none gets 4 MiB above it.
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
  /// The options in effect, with the actual values in place of zeros.
  [[nodiscard]] static StagingOptions options();

  /// Frees the pinned memory that no staged copy is using: a thread of the library returns it to
  /// the runtime, and the call waits at most 0.1 s for that. The next staged copy allocates memory
  /// again. @throws errc::not_permitted in a host function
  static void trim();
};

}  // namespace runnel::inline RUNNEL_ABI
