// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Adaptors for stream-ordered resources of any library, which limit, count and log allocations,
/// and a form of runnel's own resource that takes native streams. This header is not part of
/// runnel.hpp.
#pragma once

#include <runnel/device_resource.hpp>
#include <runnel/event.hpp>
#include <runnel/stream_ordered_resource.hpp>

#include <concepts>
#include <memory>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// A native stream, or another library's view of one, such as cuda::stream_ref.
template <class S>
concept NamesStream = std::convertible_to<const S&, native::stream> || requires(const S& stream) {
  { stream.get() } -> std::convertible_to<native::stream>;
};
template <NamesStream S>
[[nodiscard]] native::stream handle_of(const S& stream) {
  if constexpr (std::convertible_to<const S&, native::stream>)
    return stream;
  else
    return stream.get();
}
}  // namespace detail

/// runnel's own resource for code that has other libraries' streams, such as CCCL's and RMM's
/// containers: a DeviceResource that takes native streams and views of them. It is a small value
/// that owns nothing. CCCL also requires a property that states the kind of memory: derive a class
/// from this one that has
/// `friend void get_property(const Mine&, cuda::mr::device_accessible) noexcept {}`.
class NativeDeviceResource {
 public:
  static constexpr std::size_t max_alignment = DeviceResource::max_alignment;  ///< bytes

  /// The memory of `device`.
  explicit constexpr NativeDeviceResource(Device device) noexcept : resource_{device} {}

  /// As DeviceResource::allocate().
  template <detail::NamesStream S>
  [[nodiscard]] void* allocate(const S& stream, std::size_t bytes,
                               std::size_t alignment = max_alignment) const {
    return resource_.allocate(StreamRef::from_native(detail::handle_of(stream), device()), bytes,
                              alignment);
  }
  /// As DeviceResource::deallocate().
  template <detail::NamesStream S>
  void deallocate(const S& stream, void* pointer, std::size_t bytes,
                  std::size_t alignment = max_alignment) const {
    resource_.deallocate(StreamRef::from_native(detail::handle_of(stream), device()), pointer,
                         bytes, alignment);
  }
  /// Allocates memory that every stream may use when the call returns. Waits for the device's
  /// default stream.
  /// @throws as allocate()
  [[nodiscard]] void* allocate_sync(std::size_t bytes,
                                    std::size_t alignment = max_alignment) const {
    const StreamRef stream = device().default_stream();
    void* const block = resource_.allocate(stream, bytes, alignment);
    try {
      // Not stream.synchronize(), which would throw, and so consume, an exception of a host
      // function.
      stream.record_event().synchronize();
      return block;
    } catch (...) {
      resource_.deallocate(stream, block, bytes, alignment);
      throw;
    }
  }
  /// Frees the block after the work submitted to the device's default stream so far. Requires: the
  /// work of other streams that uses it is complete.
  void deallocate_sync(void* pointer, std::size_t bytes,
                       std::size_t alignment = max_alignment) const {
    resource_.deallocate(device().default_stream(), pointer, bytes, alignment);
  }

  ///@{ The same with the names of CCCL until 3.0 and RMM until 25.
  template <detail::NamesStream S>
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment,
                                     const S& stream) const {
    return allocate(stream, bytes, alignment);
  }
  template <detail::NamesStream S>
  void deallocate_async(void* pointer, std::size_t bytes, std::size_t alignment,
                        const S& stream) const {
    deallocate(stream, pointer, bytes, alignment);
  }
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = max_alignment) const {
    return allocate_sync(bytes, alignment);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment = max_alignment) const {
    deallocate_sync(pointer, bytes, alignment);
  }
  ///@}
  /// The device whose memory it is.
  [[nodiscard]] constexpr Device device() const noexcept { return resource_.device(); }

  friend constexpr bool operator==(const NativeDeviceResource&,
                                   const NativeDeviceResource&) noexcept = default;

 private:
  DeviceResource resource_;
};

/// Limits the bytes that are allocated through it at any time, from a resource of any library.
/// Copies share the limit and the bytes in use. To limit everything that the process allocates on a
/// device through runnel, use DeviceResource::set_limit() instead.
template <StreamOrderedResource R>
class LimitResource {
 public:
  /// Stores a copy of `upstream`, which allocates the memory.
  LimitResource(R upstream, std::size_t limit)
      : upstream_{std::move(upstream)}, shared_{std::make_shared<Shared>(limit)} {}

  /// Allocates from the upstream resource. @throws errc::out_of_memory beyond the limit, and what
  /// the upstream resource throws
  [[nodiscard]] void* allocate(StreamRef stream, std::size_t bytes,
                               std::size_t alignment = DeviceResource::max_alignment) {
    std::size_t used = shared_->in_use.load(std::memory_order_relaxed);
    do {
      if (bytes > shared_->limit - used)
        detail::throw_error(errc::out_of_memory, "allocate from a resource",
                            "the limit of a LimitResource leaves no room for it");
    } while (!shared_->in_use.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    try {
      void* const block = allocate_from(upstream_, stream, bytes, alignment);
      if (block == nullptr) shared_->in_use.fetch_sub(bytes, std::memory_order_relaxed);
      return block;
    } catch (...) {
      shared_->in_use.fetch_sub(bytes, std::memory_order_relaxed);
      throw;
    }
  }
  /// Deallocates a block. If the upstream resource throws, its bytes stay in use.
  void deallocate(StreamRef stream, void* pointer, std::size_t bytes,
                  std::size_t alignment = DeviceResource::max_alignment) {
    deallocate_to(upstream_, stream, pointer, bytes, alignment);
    if (pointer != nullptr) shared_->in_use.fetch_sub(bytes, std::memory_order_relaxed);
  }
  /// The limit, in bytes.
  [[nodiscard]] std::size_t limit() const noexcept { return shared_->limit; }
  /// Bytes allocated at this moment.
  [[nodiscard]] std::size_t in_use() const noexcept {
    return shared_->in_use.load(std::memory_order_relaxed);
  }
  friend bool operator==(const LimitResource& a, const LimitResource& b) noexcept {
    return a.shared_ == b.shared_;
  }

 private:
  struct Shared {
    explicit Shared(std::size_t bytes) noexcept : limit{bytes} {}
    const std::size_t limit;
    std::atomic<std::size_t> in_use{0};
  };
  R upstream_;
  std::shared_ptr<Shared> shared_;
};

/// Counts the blocks and bytes that are allocated through it. Copies share the counts.
template <StreamOrderedResource R>
class StatisticsResource {
 public:
  /// Stores a copy of `upstream`, which allocates the memory.
  explicit StatisticsResource(R upstream)
      : upstream_{std::move(upstream)}, shared_{std::make_shared<Shared>()} {}

  /// Allocates from the upstream resource. If that throws, nothing is counted. @throws what the
  /// upstream resource throws
  [[nodiscard]] void* allocate(StreamRef stream, std::size_t bytes,
                               std::size_t alignment = DeviceResource::max_alignment) {
    void* const pointer = allocate_from(upstream_, stream, bytes, alignment);
    if (pointer == nullptr) return pointer;
    shared_->blocks.fetch_add(1, std::memory_order_relaxed);
    const std::size_t now = shared_->in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t peak = shared_->peak.load(std::memory_order_relaxed);
    while (now > peak &&
           !shared_->peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return pointer;
  }
  /// Deallocates a block. If the upstream resource throws, nothing is counted.
  /// @throws what the upstream resource throws
  void deallocate(StreamRef stream, void* pointer, std::size_t bytes,
                  std::size_t alignment = DeviceResource::max_alignment) {
    deallocate_to(upstream_, stream, pointer, bytes, alignment);
    if (pointer == nullptr) return;
    shared_->in_use.fetch_sub(bytes, std::memory_order_relaxed);
    shared_->blocks.fetch_sub(1, std::memory_order_release);
  }
  /// Statistics of the memory that is allocated through this resource and its copies. Once `blocks`
  /// is 0, no thread of the library uses the resource any more.
  [[nodiscard]] DeviceStatistics statistics() const noexcept {
    const std::size_t blocks = shared_->blocks.load(std::memory_order_acquire);
    return {.in_use = shared_->in_use.load(std::memory_order_relaxed),
            .peak = shared_->peak.load(std::memory_order_relaxed),
            .blocks = blocks};
  }
  /// Sets `peak` to the bytes in use at this moment.
  void reset_peak() noexcept {
    shared_->peak.store(shared_->in_use.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  friend bool operator==(const StatisticsResource& a, const StatisticsResource& b) noexcept {
    return a.shared_ == b.shared_;
  }

 private:
  struct Shared {
    std::atomic<std::size_t> in_use{0};
    std::atomic<std::size_t> peak{0};
    std::atomic<std::size_t> blocks{0};
  };
  R upstream_;
  std::shared_ptr<Shared> shared_;
};

/// What a LoggingResource logs.
struct ResourceCall {
  /// The kind of call.
  enum class Kind {
    allocate,         ///< the block was allocated
    failed_allocate,  ///< the upstream resource has thrown; `pointer` is null
    deallocate,       ///< the block is about to be deallocated
  };
  Kind kind;              ///< the kind of call
  std::uint64_t stream;   ///< StreamRef::id()
  void* pointer;          ///< the block
  std::size_t bytes;      ///< of the block
  std::size_t alignment;  ///< of the block
};

/// Calls `log(const ResourceCall&)` for each call. Several threads may call `log` at a time. An
/// exception of `log` propagates to the caller; a block whose allocation could not be logged is
/// deallocated first.
template <StreamOrderedResource R, std::invocable<const ResourceCall&> Log>
class LoggingResource {
 public:
  /// Stores copies of both.
  LoggingResource(R upstream, Log log) : upstream_{std::move(upstream)}, log_{std::move(log)} {}

  /// Allocates from the upstream resource, and logs the call. @throws what the upstream resource
  /// and the log throw
  [[nodiscard]] void* allocate(StreamRef stream, std::size_t bytes,
                               std::size_t alignment = DeviceResource::max_alignment) {
    void* pointer = nullptr;
    try {
      pointer = allocate_from(upstream_, stream, bytes, alignment);
    } catch (...) {
      log_(ResourceCall{ResourceCall::Kind::failed_allocate, stream.id(), nullptr, bytes,
                        alignment});
      throw;
    }
    try {
      log_(ResourceCall{ResourceCall::Kind::allocate, stream.id(), pointer, bytes, alignment});
    } catch (...) {
      deallocate_to(upstream_, stream, pointer, bytes, alignment);
      throw;
    }
    return pointer;
  }
  /// Logs the call, and deallocates the block. @throws what the upstream resource and the log throw
  void deallocate(StreamRef stream, void* pointer, std::size_t bytes,
                  std::size_t alignment = DeviceResource::max_alignment) {
    log_(ResourceCall{ResourceCall::Kind::deallocate, stream.id(), pointer, bytes, alignment});
    deallocate_to(upstream_, stream, pointer, bytes, alignment);
  }

 private:
  R upstream_;
  Log log_;
};

}  // namespace runnel::inline RUNNEL_ABI
