// SPDX-License-Identifier: Apache-2.0
/// A pool of streams of one device and priority, handed out for exclusive use: two holders never have the same stream.
#pragma once

#include <runnel/device.hpp>
#include <runnel/stream.hpp>

#include <cstddef>
#include <limits>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
struct StreamPoolState;
void drop_stream_pool(StreamPoolState* pool) noexcept;
void return_stream(StreamPoolState* pool, StreamSlot* slot) noexcept;
}  // namespace detail

/// What a pool is to be like.
struct StreamPoolOptions {
  std::size_t size = 8;                                       ///< streams made at once; at least 1
  std::size_t max = std::numeric_limits<std::size_t>::max();  ///< streams made at most, when more are asked for than are there
  StreamOptions stream = {};                                  ///< what each of them is like
};

/// A stream out of a pool, which goes back when the lease ends, as it is: the next holder's work runs after what is still in it.
class StreamLease : public StreamRef {
 public:
  ///@{ The other is moved-from afterwards: using it throws.
  StreamLease(StreamLease&& other) noexcept : StreamRef{other}, pool_{std::exchange(other.pool_, nullptr)}, leased_{other.leased_} {
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
  detail::StreamSlot* leased_;  // apart from the view, so that assigning to the base never changes what goes back
};

/// Any number of threads may lease at once. Leases may outlive the pool: its streams are destroyed with the last of both. In a forked child
/// every member throws errc::forked.
class StreamPool {
 public:
  /// @throws errc::invalid_argument for a size of 0 or one above `options.max`
  explicit StreamPool(Device device, StreamPoolOptions options = {});
  ///@{ The other is moved-from afterwards: using it throws.
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

  /// The stream that has been back for longest; where none is, a new one is made. @throws errc::pool_exhausted at `options.max`
  [[nodiscard]] StreamLease acquire();

  /// The device of all its streams.
  [[nodiscard]] Device device() const;
  /// Streams made so far, leased or not.
  [[nodiscard]] std::size_t size() const;
  /// Streams that are out at this moment.
  [[nodiscard]] std::size_t leased() const;
  /// How many streams had to be made because all were leased: 0 says that `size` was enough.
  [[nodiscard]] std::size_t growth() const;

 private:
  [[nodiscard]] detail::StreamPoolState& state() const;
  detail::StreamPoolState* state_;
};

}  // namespace runnel::inline RUNNEL_ABI
