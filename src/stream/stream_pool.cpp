// SPDX-License-Identifier: Apache-2.0
#include <runnel/stream_pool.hpp>

#include "base/check.hpp"
#include "base/deferred.hpp"
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

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace runnel::inline RUNNEL_ABI {
namespace detail {

/// A stream of a pool: in the pool's list while it is idle, and its lease's otherwise.
struct PooledStream {
  PooledStream(StreamPoolState& of, Stream made) noexcept : pool{of}, stream{std::move(made)} {}

  StreamPoolState& pool;
  Stream stream;
  PooledStream* next = nullptr;
};

struct StreamPoolState {
  StreamPoolState(Device on, const StreamPoolOptions& with) : device{on}, options{with} {
    if (options.stream.name == nullptr) return;
    name = options.stream.name;  // The caller's text may be gone when the pool grows.
    options.stream.name = name.c_str();
  }
  ~StreamPoolState() {
    while (PooledStream* const each = idle.pop()) delete each;
  }

  const Device device;
  StreamPoolOptions options;
  std::string name;
  sync::Mutex asking;  // locked by the thread that asks whether idle streams are captured
  // Protects the following members. No stream begins or ends under it, since a hook may use the
  // pool, or wait for a thread that does.
  SpinLock lock;
  size_t references = 1;    // one for the pool, and one for each lease
  size_t size = 0;          // the streams, and those that are being made
  Fifo<PooledStream> idle;  // in the order of their return
  size_t growth = 0;
};

namespace {

constexpr const char* acquire_operation = "lease a stream";

/// Makes a stream. Null if the pool must not grow.
[[nodiscard]] std::unique_ptr<PooledStream> make_stream(StreamPoolState& pool) {
  {
    const std::lock_guard lock{pool.lock};
    if (pool.size >= pool.options.max) return nullptr;
    ++pool.size;
  }
  try {
    return std::make_unique<PooledStream>(pool, Stream{pool.device, pool.options.stream});
  } catch (...) {
    const std::lock_guard lock{pool.lock};
    --pool.size;
    throw;
  }
}

/// Makes a stream, and leases it. Null if the pool must not grow.
[[nodiscard]] PooledStream* lease_new(StreamPoolState& pool) {
  std::unique_ptr<PooledStream> fresh = make_stream(pool);
  if (fresh == nullptr) return nullptr;
  const std::lock_guard lock{pool.lock};
  ++pool.growth;
  ++pool.references;
  return fresh.release();
}

/// Calls `first` under the lock. Deletes the pool with its last reference.
template <class F>
void remove_reference(StreamPoolState& pool, F first) noexcept {
  pool.lock.lock();
  first();
  const bool is_last = --pool.references == 0;
  pool.lock.unlock();
  if (is_last) delete &pool;
}

/// Whether the stream takes part in a capture of another stream, which the next user's work would
/// join.
bool is_captured(StreamRef stream) noexcept {
  return capture_state(Access::slot(stream)->handle) == CaptureState::active;
}
bool is_in_own_capture(StreamRef stream) noexcept {
  const uint64_t number = capture_number_of(Access::slot(stream)->handle);
  return number != 0 && find_capture(number).thread == std::this_thread::get_id();
}

/// Leases the first idle stream for which `is_usable(stream)` is true. The others move to the end
/// of the list. Null if there is none.
template <class Predicate>
[[nodiscard]] PooledStream* take_idle(StreamPoolState& pool, Predicate is_usable) noexcept {
  std::unique_lock lock{pool.lock};
  for (size_t left = pool.idle.size(); left > 0; --left) {
    PooledStream* const oldest = pool.idle.pop();
    if (oldest == nullptr) return nullptr;
    ++pool.references;
    lock.unlock();
    if (is_usable(oldest->stream)) [[likely]]
      return oldest;
    lock.lock();
    --pool.references;
    pool.idle.push(*oldest);
  }
  return nullptr;
}

/// Leases the stream that was returned first, or a new one. Null if all are leased and the pool
/// must not grow. Skips a stream that takes part in a capture; if there is no other, the capturing
/// thread gets it.
[[nodiscard]] PooledStream* try_acquire(StreamPoolState& pool) {
  const bool has_captures = any_capture_seen() && release_mode() == Release::now;
  const auto take_if = [&](auto is_usable) {
    // take_idle() takes a stream out of the list before it asks. Other threads wait, since they
    // would not find that stream.
    std::unique_lock asking{pool.asking, std::defer_lock};
    if (has_captures) asking.lock();
    return take_idle(pool, is_usable);
  };
  PooledStream* taken =
      take_if([&](StreamRef stream) { return !has_captures || !is_captured(stream); });
  if (taken == nullptr) taken = lease_new(pool);
  if (taken == nullptr && has_captures) taken = take_if(is_in_own_capture);
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

void return_stream(PooledStream* leased) noexcept {
  if (is_forked_child()) return;  // The pool leaks: another thread may have owned its lock.
  StreamPoolState& pool = leased->pool;
  if (end_own_capture(key_of(leased->stream)))
    return remove_reference(pool, [&] { pool.idle.push(*leased); });
  const std::unique_ptr<PooledStream> captured{leased};  // ends last, so that its place is free
  remove_reference(pool, [&] { --pool.size; });
}

void drop_stream_pool(StreamPoolState* pool) noexcept {
  if (is_forked_child()) return;
  remove_reference(*pool, [] {});
}

}  // namespace detail

using namespace detail;

StreamPool::StreamPool(Device device, StreamPoolOptions options) {
  constexpr const char* operation = "make a stream pool";
  if (options.size == 0) throw_invalid_argument(operation, "the size is 0");
  if (options.size > options.max)
    throw_invalid_argument(operation, "the size is above the maximum");
  auto state = std::make_unique<StreamPoolState>(device, options);
  for (size_t i = 0; i < options.size; ++i) state->idle.push(*make_stream(*state).release());
  state_ = state.release();
}

StreamLease StreamPool::acquire() {
  enter(acquire_operation);
  StreamPoolState& pool = state();
  PooledStream* const leased = try_acquire(pool);
  if (leased == nullptr)
    throw_formatted(errc::pool_exhausted, acquire_operation, backend::ok,
                    "all %zu streams are leased or captured, and the pool must not grow",
                    pool.options.max);
  return {leased->stream, leased};
}

std::optional<StreamLease> StreamPool::acquire_to(std::chrono::steady_clock::time_point deadline) {
  enter(acquire_operation);
  StreamPoolState& pool = state();
  PooledStream* leased = try_acquire(pool);
  if (leased == nullptr) {
    const ScopedWait wait{acquire_operation};
    if (!poll_until(deadline, [&] { return (leased = try_acquire(pool)) != nullptr; }))
      return std::nullopt;
  }
  return StreamLease{leased->stream, leased};
}

Device StreamPool::device() const {
  refuse_in_child("ask for a stream pool's device");
  return state().device;
}
size_t StreamPool::size() const {
  refuse_in_child("ask for a stream pool's size");
  const std::lock_guard lock{state().lock};
  return state().size;
}
size_t StreamPool::leased() const {
  refuse_in_child("ask for a stream pool's leases");
  const std::lock_guard lock{state().lock};
  return state().size - state().idle.size();
}
size_t StreamPool::growth() const {
  refuse_in_child("ask for a stream pool's growth");
  const std::lock_guard lock{state().lock};
  return state().growth;
}

StreamPoolState& StreamPool::state() const {
  if (state_ == nullptr)
    throw_error(errc::invalid_handle, "use a stream pool", "it was moved from");
  return *state_;
}

}  // namespace runnel::inline RUNNEL_ABI
