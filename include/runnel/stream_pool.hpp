// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// A pool of streams of one device and priority. The pool leases each stream to one holder at a
/// time.
#pragma once

#include <runnel/device.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
struct StreamPoolState;
void drop_stream_pool(StreamPoolState* pool) noexcept;
void return_stream(StreamPoolState* pool, StreamSlot* slot) noexcept;
}  // namespace detail

/// Options of a pool.
struct StreamPoolOptions {
  std::size_t size = 8;  ///< streams to create at once, at least 1 (default: 8)
  std::size_t max =
      std::numeric_limits<std::size_t>::max();  ///< most streams, leased or not; the pool grows up
                                                ///< to this number (default: no limit)
  StreamOptions stream = {};                    ///< options of each stream
};

/// A stream leased from a pool. It goes back when the lease ends, with the work that is still in
/// it: the next holder's work runs after that. A capture that was begun on it with begin_capture()
/// ends without a graph. If another thread has begun it, the stream is destroyed, and the pool may
/// create another one. A stream that took part in a capture of another one is leased again once
/// that has ended, and before that, if no other stream is there, to the thread that captures.
class StreamLease : public StreamRef {
 public:
  ///@{ The other lease is moved-from afterwards: using it throws.
  StreamLease(StreamLease&& other) noexcept
      : StreamRef{other}, pool_{std::exchange(other.pool_, nullptr)}, leased_{other.leased_} {
    other.slot_ = nullptr;
    other.id_ = 0;
  }
  StreamLease& operator=(StreamLease&& other) noexcept {
    StreamLease taken{std::move(other)};
    std::swap(slot_, taken.slot_);
    std::swap(id_, taken.id_);
    std::swap(pool_, taken.pool_);
    std::swap(leased_, taken.leased_);
    return *this;
  }
  ///@}
  ~StreamLease() {
    if (pool_ != nullptr) detail::return_stream(pool_, leased_);
  }

 private:
  friend class StreamPool;
  StreamLease(StreamRef stream, detail::StreamSlot* slot, detail::StreamPoolState* pool) noexcept
      : StreamRef{stream}, pool_{pool}, leased_{slot} {}

  detail::StreamPoolState* pool_;
  // apart from the view, so that assigning to the base never changes which stream goes back
  detail::StreamSlot* leased_;
};

/// Leases streams for exclusive use. Any number of threads may use a pool at once. Leases may
/// outlive the pool: the streams are destroyed when the pool and all leases are gone. In a forked
/// child every member throws errc::forked.
class StreamPool {
 public:
  /// Creates `options.size` streams. @throws errc::invalid_argument for a size of 0 or one above
  /// `options.max`
  explicit StreamPool(Device device, StreamPoolOptions options = {});
  ///@{ The other pool is moved-from afterwards: using it throws.
  StreamPool(StreamPool&& other) noexcept : state_{std::exchange(other.state_, nullptr)} {}
  StreamPool& operator=(StreamPool&& other) noexcept {
    StreamPool taken{std::move(other)};
    std::swap(state_, taken.state_);
    return *this;
  }
  ///@}
  ~StreamPool() {
    if (state_ != nullptr) detail::drop_stream_pool(state_);
  }

  /// Leases the stream that came back first; if none is there, the pool creates one. @throws
  /// errc::pool_exhausted at `options.max`; errc::not_permitted in a host function and in a hook
  [[nodiscard]] StreamLease acquire();
  /// As acquire(), but at `options.max` waits at most `timeout` until a stream comes back; nothing
  /// if the time ran out first.
  template <class Rep, class Period>
  [[nodiscard]] std::optional<StreamLease> acquire_for(std::chrono::duration<Rep, Period> timeout) {
    return acquire_to(detail::deadline_after(timeout));
  }
  /// The same until a point in time of any clock.
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<StreamLease> acquire_until(
      std::chrono::time_point<Clock, Duration> time) {
    return acquire_to(detail::deadline_at(time));
  }

  /// The device of all the pool's streams.
  [[nodiscard]] Device device() const;
  /// The number of streams, leased or not.
  [[nodiscard]] std::size_t size() const;
  /// The number of streams leased at this moment.
  [[nodiscard]] std::size_t leased() const;
  /// The number of streams created because all were leased; 0 if `size` was enough.
  [[nodiscard]] std::size_t growth() const;

 private:
  [[nodiscard]] detail::StreamPoolState& state() const;
  [[nodiscard]] std::optional<StreamLease> acquire_to(
      std::chrono::steady_clock::time_point deadline);
  detail::StreamPoolState* state_;
};

}  // namespace runnel::inline RUNNEL_ABI
