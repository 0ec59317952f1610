// SPDX-License-Identifier: Apache-2.0
/// The rings of all streams, and the options of the rings and the workers.
#pragma once

#include "backend.hpp"
#include "base/sync.hpp"
#include "copy/staging/job.hpp"
#include "copy/staging/ring.hpp"
#include "slot/slots.hpp"

#include <runnel/staging.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

class StagingRings {
 public:
  void configure(const StagingOptions& options);
  StagingOptions options();
  /// Returns a ring for the stream's next job, and counts that job as active. The first call starts
  /// the workers.
  Ring& ring_for(const Slot& slot, const Work& work, const char* operation);
  /// Frees the memory of unused rings.
  void trim() noexcept;

 private:
  void start_workers(const char* operation);
  size_t ring_bytes_for(const Work& work, size_t row) const;
  size_t row_of(uint64_t owner) const noexcept;
  Ring* find_ring(uint64_t owner, size_t bytes);
  Ring* find_or_make_ring(uint64_t owner, size_t bytes, const char* operation,
                          backend::status& refusal);
  [[nodiscard]] backend::status make_ring(size_t bytes, Ring*& made);

  sync::Mutex mutex_;  // guards the rest
  StagingOptions options_;
  bool started_ = false;
  std::vector<std::unique_ptr<Ring>> rings_;
  size_t pinned_ = 0;
};
[[nodiscard]] StagingRings& staging_rings();
/// Lets allocations of pinned memory that find no room take back that of the rings.
void give_back_rings_in_shortage() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
