// SPDX-License-Identifier: Apache-2.0
#include <runnel/stream_pool.hpp>

#include "base/check.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "capture/open_captures.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/slots.hpp"

#include <runnel/detail/access.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI {
namespace detail {

struct StreamPoolState {
  StreamPoolState(Device on, const StreamPoolOptions& with) : device{on}, options{with} {
    if (options.stream.name == nullptr) return;
    name = options.stream.name;  // The caller's text may be gone when the pool grows.
    options.stream.name = name.c_str();
  }

  const Device device;
  StreamPoolOptions options;
  std::string name;
  sync::Mutex growing;
  // Protects the following members. No foreign code is called under it.
  SpinLock lock;
  std::size_t references = 1;  // one for the pool, and one for each lease
  std::vector<Stream> streams;
  // A ring buffer of the idle streams, in the order of their return. It has room for all streams.
  std::vector<StreamRef> ring;
  std::size_t first = 0;
  std::size_t idle = 0;
  std::size_t growth = 0;
};

namespace {

constexpr const char* acquire_operation = "lease a stream";

/// An index into the ring, wrapped around at its end.
[[nodiscard]] std::size_t ring_index(const StreamPoolState& pool, std::size_t index) noexcept {
  return index < pool.ring.size() ? index : index - pool.ring.size();
}

/// Adds a stream to the end of the ring, or leases it at once (`lease`). Nothing if the pool must
/// not grow.
std::optional<StreamRef> add_stream(StreamPoolState& pool, bool lease) {
  const std::lock_guard growing{pool.growing};
  if (pool.streams.size() >= pool.options.max) return std::nullopt;
  Stream stream{pool.device, pool.options.stream};
  const StreamRef view = stream;
  // The memory is allocated outside the spin lock. Only the owner of `growing` changes the sizes.
  std::vector<Stream> streams;
  std::vector<StreamRef> ring(pool.streams.size() + 1, view);
  streams.reserve(pool.streams.size() + 1);
  const std::lock_guard lock{pool.lock};
  for (Stream& old : pool.streams) streams.push_back(std::move(old));
  streams.push_back(std::move(stream));
  pool.streams.swap(streams);
  for (std::size_t i = 0; i < pool.idle; ++i) ring[i] = pool.ring[ring_index(pool, pool.first + i)];
  pool.ring.swap(ring);
  pool.first = 0;
  if (lease) {
    ++pool.growth;
    ++pool.references;
  } else {
    pool.ring[pool.idle++] = view;
  }
  return view;
}

/// Calls `first` under the lock. Deletes the pool with its last reference.
template <class F>
void remove_reference(StreamPoolState* pool, F first) noexcept {
  pool->lock.lock();
  first();
  const bool is_last = --pool->references == 0;
  pool->lock.unlock();
  if (is_last) delete pool;
}

/// Whether the stream takes part in a capture of another stream, which the next user's work would
/// join.
[[nodiscard]] bool is_captured(StreamRef stream) noexcept {
  return capture_state(Access::slot(stream)->handle) == CaptureState::active;
}
[[nodiscard]] bool is_in_own_capture(StreamRef stream) noexcept {
  const std::uint64_t number = capture_number_of(Access::slot(stream)->handle);
  return number != 0 && find_capture(number).thread == std::this_thread::get_id();
}

/// Leases the first idle stream for which `is_usable(stream)` is true. The others move to the end
/// of the ring.
template <class Predicate>
[[nodiscard]] std::optional<StreamRef> take_idle(StreamPoolState& pool,
                                                 Predicate is_usable) noexcept {
  // One object, constructed in the caller's storage: copying it just after it was written takes 15
  // ns.
  std::optional<StreamRef> taken;
  std::unique_lock lock{pool.lock};
  for (std::size_t left = pool.idle; left > 0 && pool.idle > 0; --left) {
    const StreamRef oldest = pool.ring[pool.first];
    pool.first = ring_index(pool, pool.first + 1);
    --pool.idle;
    ++pool.references;
    lock.unlock();
    if (is_usable(oldest)) [[likely]] {
      taken.emplace(oldest);
      break;
    }
    lock.lock();
    --pool.references;
    pool.ring[ring_index(pool, pool.first + pool.idle++)] = oldest;
  }
  return taken;
}

[[nodiscard]] bool may_grow(StreamPoolState& pool) noexcept {
  const std::lock_guard lock{pool.lock};
  return pool.streams.size() < pool.options.max;
}

/// Leases the stream that was returned first, or a new one. Nothing if all are leased and the pool
/// must not grow. Skips a stream that takes part in a capture; if there is no other, the capturing
/// thread gets it.
[[nodiscard]] std::optional<StreamRef> try_acquire(StreamPoolState& pool) {
  const bool has_captures = any_capture_seen() && release_mode() == Release::now;
  std::optional<StreamRef> taken =
      take_idle(pool, [&](StreamRef stream) { return !has_captures || !is_captured(stream); });
  if (!taken && may_grow(pool)) taken = add_stream(pool, true);
  if (!taken && has_captures) taken = take_idle(pool, is_in_own_capture);
  return taken;
}

/// Removes a leased stream from the pool.
[[nodiscard]] Stream remove_stream(StreamPoolState& pool, StreamRef stream) noexcept {
  const std::lock_guard growing{pool.growing};
  const std::lock_guard lock{pool.lock};
  const auto found = std::find(pool.streams.begin(), pool.streams.end(), stream);
  Stream taken{std::move(*found)};
  pool.streams.erase(found);
  return taken;
}

/// Ends an open capture, which the next user's work would join. Runtimes end a capture only on the
/// thread that has begun it: false on another thread.
[[nodiscard]] bool end_own_capture(StreamKey stream) noexcept {
  if (!any_capture_seen() || release_mode() != Release::now) return true;
  const OpenCapture capture = capture_begun_on(stream.id);
  if (!capture) return true;
  if (capture.thread != std::this_thread::get_id()) return false;
  const ScopedDevice on{stream.slot->device, ScopedDevice::no_throw};
  abandon_capture(stream);
  return true;
}

}  // namespace

void return_stream(StreamPoolState* pool, StreamSlot* slot) noexcept {
  if (is_forked_child()) return;  // The pool leaks: another thread may have owned its lock.
  const StreamKey key = key_of(static_cast<Slot&>(*slot));
  const StreamRef stream = view_of(key);
  if (!end_own_capture(key)) {
    const Stream captured = remove_stream(*pool, stream);
    return remove_reference(pool, [] {});
  }
  remove_reference(pool,
                   [&] { pool->ring[ring_index(*pool, pool->first + pool->idle++)] = stream; });
}

void drop_stream_pool(StreamPoolState* pool) noexcept {
  if (is_forked_child()) return;
  remove_reference(pool, [] {});
}

}  // namespace detail

using namespace detail;

StreamPool::StreamPool(Device device, StreamPoolOptions options) {
  constexpr const char* operation = "make a stream pool";
  if (options.size == 0) throw_error(errc::invalid_argument, operation, "the size is 0");
  if (options.size > options.max)
    throw_error(errc::invalid_argument, operation, "the size is above the maximum");
  auto state = std::make_unique<StreamPoolState>(device, options);
  for (std::size_t i = 0; i < options.size; ++i) add_stream(*state, false);
  state_ = state.release();
}

StreamLease StreamPool::acquire() {
  enter(acquire_operation);
  StreamPoolState& pool = state();
  const std::optional<StreamRef> stream = try_acquire(pool);
  if (!stream)
    throw_formatted(errc::pool_exhausted, acquire_operation, backend::ok,
                    "all %zu streams are leased or captured, and the pool must not grow",
                    pool.options.max);
  return {*stream, Access::slot(*stream), &pool};
}

std::optional<StreamLease> StreamPool::acquire_to(std::chrono::steady_clock::time_point deadline) {
  enter(acquire_operation);
  StreamPoolState& pool = state();
  std::optional<StreamRef> stream = try_acquire(pool);
  if (!stream) {
    const ScopedWait wait{acquire_operation};
    if (!poll_until(deadline, [&] { return (stream = try_acquire(pool)).has_value(); }))
      return std::nullopt;
  }
  return StreamLease{*stream, Access::slot(*stream), &pool};
}

Device StreamPool::device() const {
  refuse_in_child("ask for a stream pool's device");
  return state().device;
}
std::size_t StreamPool::size() const {
  refuse_in_child("ask for a stream pool's size");
  const std::lock_guard lock{state().lock};
  return state().streams.size();
}
std::size_t StreamPool::leased() const {
  refuse_in_child("ask for a stream pool's leases");
  const std::lock_guard lock{state().lock};
  return state().streams.size() - state().idle;
}
std::size_t StreamPool::growth() const {
  refuse_in_child("ask for a stream pool's growth");
  const std::lock_guard lock{state().lock};
  return state().growth;
}

StreamPoolState& StreamPool::state() const {
  if (state_ == nullptr)
    throw_error(errc::invalid_handle, "use a stream pool", "it was moved from");
  return *state_;
}

}}  // namespace runnel::RUNNEL_ABI
