// SPDX-License-Identifier: Apache-2.0
#include "copy/staging/rings.hpp"

#include "base/check.hpp"
#include "base/lost_device.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/parse_size.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "copy/short_copy.hpp"
#include "copy/staging/cut.hpp"
#include "copy/staging/workers.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "memory/pinned_pages.hpp"
#include "memory/pinned_pool.hpp"
#include "memory/pinned_shelves.hpp"
#include "memory/releaser.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

[[noreturn]] void throw_shortage(backend::status s, const char* operation) {
  if (pinned_shelves().statistics().cached == 0) throw_status(s, operation);
  backend::forget_error(s);
  throw_error(errc::out_of_memory, operation,
              "there is no pinned memory to stage it; PinnedPool::trim() gives back what the pool "
              "keeps for reuse",
              s, backend::error_name(s));
}

// A piece takes three runtime calls, and a channel of CUDA has room for 1,020.
constexpr size_t max_pieces = 256;
constexpr size_t smallest_ring = smallest_piece * pieces_per_ring;
/// How long a copy that gets no memory for a ring waits for the ring of another stream.
constexpr std::chrono::seconds ring_patience{1};

constexpr int max_workers = 64;

/// Workers may still move bytes that a lost device has sent to the ring.
void cancel_jobs_of_lost_devices() noexcept {
  for (int device = 0; device < max_devices; ++device)
    if (staging_workers().find_active(&Job::device, device) != nullptr &&
        internal_call(device, ScopedDevice::no_throw, is_current_device_lost))
      staging_workers().cancel_all(&Job::device, device);
}

/// The options with the environment's values, or the defaults, for what they leave open.
StagingOptions completed(StagingOptions o) noexcept {
  constexpr size_t mib = size_t{1} << 20;
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  if (o.workers == 0)
    o.workers = number_in_environment("RUNNEL_STAGING_WORKERS", 1, max_workers)
                    .value_or(std::clamp(processors * 3 / 4, 1, 12));
  o.workers = std::min(o.workers, max_workers);
  if (o.chunk == 0) o.chunk = size_in_environment("RUNNEL_STAGING_CHUNK").value_or(16 * mib);
  o.chunk = std::bit_floor(std::clamp(o.chunk, smallest_piece, 1024 * mib));
  if (o.memory == 0) o.memory = size_in_environment("RUNNEL_STAGING_MEMORY").value_or(512 * mib);
  return o;
}

}  // namespace

StagingRings& staging_rings() { return never_destroyed<StagingRings>(); }

void StagingRings::configure(const StagingOptions& options) {
  constexpr const char* operation = "set staging options";
  refuse_in_child(operation);
  if (options.workers < 0) throw_invalid_argument(operation, "the number of workers is negative");
  const std::lock_guard lock{mutex_};
  if (started_)
    throw_error(errc::not_permitted, operation,
                "a copy has been staged already: set the options before");
  options_ = options;
}

StagingOptions StagingRings::options() {
  refuse_in_child("ask for the staging options");
  const std::lock_guard lock{mutex_};
  return completed(options_);
}

/// The bytes of the stream's earlier copies in a row (Ring::row).
size_t StagingRings::row_of(uint64_t owner) const noexcept {
  size_t row = 0;
  for (const auto& ring : rings_) {
    const bool is_over = ring->data == nullptr || ring->is_unused() || ring->given_up;
    if (ring->owner == owner && !is_over) row = std::max(row, ring->row.load());
  }
  return row;
}

/// Returns the stream's own ring, else the smallest unused one that is large enough, else null. The
/// last stream of an unused ring must also have read all its bytes. Otherwise the next stream would
/// wait for that stream, perhaps forever if both share a hardware channel.
Ring* StagingRings::find_ring(uint64_t owner, size_t bytes) {
  Ring* best = nullptr;
  for (const auto& ring : rings_) {
    if (ring->data == nullptr || ring->bytes < bytes || ring->given_up) continue;
    if (ring->owner == owner) return ring.get();
    if (ring->is_unused() && (best == nullptr || ring->bytes < best->bytes)) best = ring.get();
  }
  return best;
}

backend::status StagingRings::make_ring(size_t bytes, Ring*& made) {
  const auto trimmed =
      std::ranges::find_if(rings_, [](const auto& ring) { return ring->data == nullptr; });
  Ring* ring = trimmed != rings_.end() ? trimmed->get() : nullptr;
  if (ring == nullptr) {
    // The values come after everything that can throw, because they are never freed.
    rings_.reserve(rings_.size() + 1);
    auto fresh = std::make_unique<Ring>();
    void* values = nullptr;
    const backend::status s =
        internal_call([&] { return backend::malloc_host(values, Ring::values_bytes); });
    if (s != backend::ok) return s;
    std::memset(values, 0, Ring::values_bytes);
    fresh->values = static_cast<uint32_t*>(values);
    ring = rings_.emplace_back(std::move(fresh)).get();
  }
  void* data = nullptr;
  if (const backend::status s = internal_call([&] { return allocate_pinned_pages(data, bytes); });
      s != backend::ok)
    return s;
  ring->set_memory(static_cast<unsigned char*>(data), bytes);
  pinned_ += bytes;
  made = ring;
  return backend::ok;
}

/// `row`: the bytes of the copies in a row, including this work. There are few sizes, so that a
/// ring can serve many copies.
size_t StagingRings::ring_bytes_for(const Work& work, size_t row) const {
  constexpr size_t mib = size_t{1} << 20;
  size_t piece = smallest_piece;
  if (row > 2 * mib) piece = 2 * mib;
  if (row > 32 * mib) piece = std::max(8 * mib, std::bit_floor(row / 16));
  piece = std::min(piece, options_.chunk);
  // A full channel blocks the caller. One ring may take half of all memory.
  while (count_pieces(work.rows, work.bytes(), largest_piece(piece * pieces_per_ring, row)) >
             max_pieces &&
         piece * 2 * pieces_per_ring <= options_.memory / 2)
    piece *= 2;
  return piece * pieces_per_ring;
}

void StagingRings::start_workers(const char* operation) {
  if (started_) return;
  give_back_rings_in_shortage();
  before_lost_device_is_reported = cancel_jobs_of_lost_devices;
  options_ = completed(options_);
  if (!staging_workers().start(options_.workers))
    throw_error(errc::out_of_memory, operation, "the system has no thread to move the bytes");
  started_ = true;
}

/// Above the limit, or without memory, a stream gets a smaller ring, if necessary the smallest.
/// This function does not trim cached pinned memory, which takes long. Returns null if there is no
/// memory for the smallest ring; `refusal` is the runtime's status then.
Ring* StagingRings::find_or_make_ring(uint64_t owner, size_t bytes, const char* operation,
                                      backend::status& refusal) {
  for (;; bytes /= 2) {
    Ring* ring = find_ring(owner, bytes);
    if (ring != nullptr) return ring;
    const bool is_smallest = bytes == smallest_ring;
    if (!is_smallest && pinned_ + bytes > options_.memory) continue;
    refusal = make_ring(bytes, ring);
    if (!failed_with(refusal, errc::out_of_memory)) {
      check(refusal, operation);
      return ring;
    }
    if (is_smallest) return nullptr;
  }
}

Ring& StagingRings::ring_for(const Slot& slot, const Work& work, const char* operation) {
  const uint64_t id = slot.id.load(std::memory_order_relaxed);
  std::unique_lock lock{mutex_};
  start_workers(operation);
  const size_t row = row_of(id) + work.bytes();
  backend::status refusal = backend::ok;
  Ring* ring = find_or_make_ring(id, ring_bytes_for(work, row), operation, refusal);
  if (ring == nullptr) {
    // Copies of other streams use all the memory.
    const ScopedWait wait{operation};
    lock.unlock();
    try_for(ring_patience, [&] {
      lock.lock();
      ring = find_ring(id, smallest_ring);
      if (ring == nullptr) lock.unlock();
      return ring != nullptr;
    });
    if (ring == nullptr) throw_shortage(refusal, operation);
  }
  ring->owner = id;
  ring->row = row;
  ++ring->active;
  return *ring;
}

void StagingRings::trim() noexcept {
  for (;;) {
    void* unused = nullptr;
    {
      const std::lock_guard lock{mutex_};
      const auto found = std::ranges::find_if(
          rings_, [](const auto& ring) { return ring->data != nullptr && ring->is_unused(); });
      if (found == rings_.end()) return;
      unused = (*found)->data;
      pinned_ -= (*found)->bytes;
      (*found)->set_memory(nullptr, 0);
    }
    release_on_thread({free_pinned_pages, unused, 0});
  }
}

void give_back_rings_in_shortage() noexcept {
  give_back_copy_memory = [](bool beyond_limit) noexcept {
    give_back_short_copy_rings();
    if (!beyond_limit) staging_rings().trim();
  };
}

}  // namespace detail

using namespace detail;

void Staging::set_options(const StagingOptions& options) { staging_rings().configure(options); }
StagingOptions Staging::options() { return staging_rings().options(); }
void Staging::trim() {
  constexpr const char* operation = "trim staging memory";
  enter(operation);
  give_back_short_copy_rings();
  staging_rings().trim();
  wait_after_trim(operation);
}

}  // namespace runnel::inline RUNNEL_ABI
