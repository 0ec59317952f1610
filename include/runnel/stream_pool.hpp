// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// A pool of streams of one device with the same options. It leases each stream to one user at a
/// time.
#pragma once

#include <runnel/stream.hpp>

#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
struct StreamPoolState;
void drop_stream_pool(StreamPoolState* pool) noexcept;
struct PooledStream;
void return_stream(PooledStream* leased) noexcept;
}  // namespace detail

/// Options of a pool.
struct StreamPoolOptions {
  std::size_t size = 8;  ///< streams that the constructor creates, at least 1 (default: 8)
  std::size_t max =
      std::numeric_limits<std::size_t>::max();  ///< the maximum number of streams, leased or not,
                                                ///< up to which the pool grows (default: no limit)
  StreamOptions stream = {};                    ///< options of each stream
};

/// A stream leased from a pool. The destructor of the lease returns the stream, which may still
/// have pending work: the work of the next lease runs after that. If a capture was begun on the
/// stream with begin_capture(), it ends without a graph. If another thread has begun that capture,
/// the stream is destroyed, and the pool may create another one. A stream that takes part in the
/// capture of another stream is leased again once that capture has ended; before that it is leased
/// only to the thread that captures, if no other stream is available.
class StreamLease : public StreamRef {
 public:
  ///@{ The other lease is moved-from afterwards: using it throws.
  StreamLease(StreamLease&& other) noexcept
      : StreamRef{other}, leased_{std::exchange(other.leased_, nullptr)} {
    other.slot_ = nullptr;
    other.id_ = 0;
  }
  StreamLease& operator=(StreamLease&& other) noexcept {
    StreamLease taken{std::move(other)};
    std::swap(slot_, taken.slot_);
    std::swap(id_, taken.id_);
    std::swap(leased_, taken.leased_);
    return *this;
  }
  ///@}
  ~StreamLease() {
    if (leased_ != nullptr) detail::return_stream(leased_);
  }

 private:
  friend class StreamPool;
  StreamLease(StreamRef stream, detail::PooledStream* leased) noexcept
      : StreamRef{stream}, leased_{leased} {}

  // Separate from the view, so that assigning to the base never changes which stream is returned.
  detail::PooledStream* leased_;
};

/// Leases streams for exclusive use. Any number of threads may use a pool at once. Leases may
/// outlive the pool: the streams are destroyed when the pool and all leases are destroyed. In a
/// forked child every member throws errc::forked.
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

  /// Leases the stream that was returned first; if none is available, the pool creates one. @throws
  /// errc::pool_exhausted at `options.max`; errc::not_permitted in a host function and in a hook
  [[nodiscard]] StreamLease acquire();
  /// As acquire(), but if `options.max` streams are leased, it waits at most `timeout` until one is
  /// returned. Returns an empty optional if the time ran out first.
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
  /// The number of streams that were created because all others were leased; 0 if `size` was
  /// enough.
  [[nodiscard]] std::size_t growth() const;

 private:
  [[nodiscard]] detail::StreamPoolState& state() const;
  [[nodiscard]] std::optional<StreamLease> acquire_to(
      std::chrono::steady_clock::time_point deadline);
  detail::StreamPoolState* state_;
};

}  // namespace runnel::inline RUNNEL_ABI
