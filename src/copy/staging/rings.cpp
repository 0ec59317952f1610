// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/rings.hpp"

#include "base/check.hpp"
#include "base/immortal.hpp"
#include "base/parse_size.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "copy/short_copy.hpp"
#include "copy/staging/workers.hpp"

#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

// A piece costs the stream about 10 us beside its copy (a wait, a write, and the gap around them), so that small pieces are slow; but
// a large one would be long in the filling. So pieces are large, and several workers move the parts of one.
constexpr std::size_t smallest_slot = std::size_t{512} << 10;
// Three commands each, of the some thousand that CUDA's channels hold.
constexpr std::size_t most_pieces = 256;

constexpr std::size_t most_workers = 64;

[[nodiscard]] std::size_t from_environment(const char* name) noexcept {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : parse_size(text).value_or(0);
}

}  // namespace

// Never destroyed: a copy may be staged as late as statics die.
StagingRings& staging_rings() { return immortal<StagingRings>(); }

void StagingRings::fill_in_options() {
  StagingOptions o = options_.value_or(StagingOptions{});
  if (o.workers == 0) o.workers = static_cast<int>(std::min(from_environment("RUNNEL_STAGING_WORKERS"), most_workers));
  if (o.workers == 0) o.workers = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) * 3 / 4, 1, 12);
  o.workers = std::min(o.workers, static_cast<int>(most_workers));
  if (o.chunk == 0) o.chunk = from_environment("RUNNEL_STAGING_CHUNK");
  if (o.chunk == 0) o.chunk = std::size_t{8} << 20;
  o.chunk = std::clamp(o.chunk, smallest_slot, std::size_t{1} << 30);
  if (o.memory == 0) o.memory = from_environment("RUNNEL_STAGING_MEMORY");
  if (o.memory == 0) o.memory = std::size_t{512} << 20;
  options_ = o;
}

void StagingRings::configure(const StagingOptions& options) {
  constexpr const char* operation = "set staging options";
  refuse_in_child(operation);
  if (options.workers < 0) throw_error(errc::invalid_argument, operation, "the number of workers is negative");
  const std::lock_guard lock{mutex_};
  if (started_) throw_error(errc::not_permitted, operation, "a copy has been staged already");
  options_ = options;
}

StagingOptions StagingRings::options() {
  refuse_in_child("ask for the staging options");
  const std::lock_guard lock{mutex_};
  if (!started_) {
    const std::optional<StagingOptions> set = options_;
    fill_in_options();
    return *std::exchange(options_, set);
  }
  return *options_;
}

/// The stream's own ring, or else the smallest unused one that is large enough. That the workers are done is not enough: the stream
/// before may still have to read the slots, and the next one would wait, perhaps in the same channel, for values behind it.
Ring* StagingRings::find_ring(std::uint64_t owner, std::size_t slot_bytes) {
  Ring* best = nullptr;
  for (const auto& ring : rings_) {
    if (ring->data == nullptr || ring->slot_bytes < slot_bytes || ring->given_up.load(std::memory_order_acquire)) continue;
    if (ring->owner == owner) return ring.get();
    if (ring->unused() && (best == nullptr || ring->slot_bytes < best->slot_bytes)) best = ring.get();
  }
  return best;
}

Ring& StagingRings::make_ring(std::size_t slot_bytes, const char* operation) {
  const RelaxedCapture relaxed;
  const auto trimmed = std::find_if(rings_.begin(), rings_.end(), [](const auto& ring) { return ring->data == nullptr; });
  Ring* ring = trimmed != rings_.end() ? trimmed->get() : nullptr;
  if (ring == nullptr) {
    void* values = nullptr;
    check(backend::malloc_host(values, Ring::values_bytes), operation);
    std::memset(values, 0, Ring::values_bytes);
    ring = rings_.emplace_back(std::make_unique<Ring>(static_cast<std::uint32_t*>(values))).get();
  }
  void* data = nullptr;
  check(backend::malloc_host(data, slot_bytes * slots_per_ring), operation);
  ring->data = static_cast<unsigned char*>(data);
  ring->slot_bytes = slot_bytes;
  pinned_ += slot_bytes * slots_per_ring;
  return *ring;
}

/// In powers of 2, so that rings can serve many.
std::size_t StagingRings::slot_bytes_for(std::size_t bytes) const {
  std::size_t slot = smallest_slot;
  // A sixteenth of the copy, so that the device starts early.
  while (slot * 2 <= options_->chunk && slot * 16 < bytes) slot *= 2;
  // Not more pieces than a stream takes at once: whoever tells it more is held until it gets on. One ring may be half of all memory.
  while (slot * most_pieces < bytes && slot * 2 * slots_per_ring <= options_->memory / 2) slot *= 2;
  return slot;
}

Ring& StagingRings::ring_for(const Slot& slot, std::size_t bytes, const char* operation) {
  const std::uint64_t id = slot.id.load(std::memory_order_relaxed);
  const std::lock_guard lock{mutex_};
  if (!started_) {
    fill_in_options();
    if (!staging_workers().start(options_->workers))
      throw_error(errc::out_of_memory, operation, "the system has no thread to move the bytes");
    started_ = true;
  }
  std::size_t slot_bytes = slot_bytes_for(bytes);
  Ring* ring = find_ring(id, slot_bytes);
  // Over the limit a stream gets a smaller ring, if need be the smallest: slower, but never stuck behind another stream.
  while (ring == nullptr && slot_bytes > smallest_slot && pinned_ + slot_bytes * slots_per_ring > options_->memory) {
    slot_bytes /= 2;
    ring = find_ring(id, slot_bytes);
  }
  if (ring == nullptr) ring = &make_ring(slot_bytes, operation);
  ring->owner = id;
  ring->active.fetch_add(1, std::memory_order_acq_rel);
  return *ring;
}

void StagingRings::trim() {
  std::vector<void*> unused;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& ring : rings_) {
      if (ring->data == nullptr || !ring->unused()) continue;
      unused.push_back(std::exchange(ring->data, nullptr));
      pinned_ -= ring->slot_bytes * slots_per_ring;
    }
  }
  if (unused.empty()) return;
  const RelaxedCapture relaxed;
  for (void* const block : unused) succeeded_or_forget(backend::free_host(block));
}

}  // namespace detail

void set_staging_options(const StagingOptions& options) { detail::staging_rings().configure(options); }
StagingOptions staging_options() { return detail::staging_rings().options(); }
void trim_staging() {
  detail::enter("trim staging memory");
  detail::give_back_kept_blocks();
  detail::staging_rings().trim();
}

}  // namespace runnel::inline RUNNEL_ABI
