// SPDX-License-Identifier: Apache-2.0
/// How copies from and to ordinary memory are carried through pinned memory (`Pageable::stage`).
#pragma once

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {

/// Zeros leave the choice to runnel. The environment (RUNNEL_STAGING_WORKERS, _CHUNK, _MEMORY) fills in what is left 0.
/// All of a copy is told to the stream at once, so that one of more than 256 pieces has larger ones, while 8 of them fit half of `memory`.
struct StagingOptions {
  int workers = 0;         ///< threads that move bytes between user memory and pinned memory, at most 64; else 3/4 of the cores, 1 to 12
  std::size_t chunk = 0;   ///< bytes of a piece, a power of 2; else 8 MiB. Small copies have smaller ones, from 512 KiB on
  std::size_t memory = 0;  ///< bytes of pinned memory to be used by all rings together, a stream's smallest ring aside; else 512 MiB
};

/// Takes effect if no copy has been staged yet. @throws errc::not_permitted if one has, errc::invalid_argument for negative workers
void set_staging_options(const StagingOptions& options);
/// What is in force, zeros filled in.
[[nodiscard]] StagingOptions staging_options();
/// Gives back the pinned memory that no copy of ordinary memory uses; the next one makes its own again.
void trim_staging();

}  // namespace runnel::inline RUNNEL_ABI
