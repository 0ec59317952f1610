// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// The concept of a resource, from any library, that allocates in stream order, and the functions
/// that call one.
#pragma once

#include <runnel/stream.hpp>

#include <atomic>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
template <class R, class S>
concept AllocatesOn = requires(R& resource, S stream, void* pointer, std::size_t size) {
  { resource.allocate(stream, size, size) } -> ConvertibleTo<void*>;
  resource.deallocate(stream, pointer, size, size);
};
/// The names and the argument order of CCCL until 3.0, and of RMM until 25.
template <class R>
concept AllocatesAsync =
    requires(R& resource, native::stream stream, void* pointer, std::size_t size) {
      { resource.allocate_async(size, size, stream) } -> ConvertibleTo<void*>;
      resource.deallocate_async(pointer, size, size, stream);
    };
}  // namespace detail

/// A resource with `allocate(stream, bytes, alignment)` and
/// `deallocate(stream, pointer, bytes, alignment)`, whose stream is a StreamRef, or a native stream
/// as in CCCL and RMM. A resource may also have the older form of these functions:
/// `allocate_async(bytes, alignment, stream)` and
/// `deallocate_async(pointer, bytes, alignment, stream)`.
template <class R>
concept StreamOrderedResource = detail::AllocatesOn<R, StreamRef> ||
                                detail::AllocatesOn<R, native::stream> || detail::AllocatesAsync<R>;

/// Allocates from any stream-ordered resource. @throws what the resource throws
template <StreamOrderedResource R>
[[nodiscard]] void* allocate_from(R& resource, StreamRef stream, std::size_t bytes,
                                  std::size_t alignment) {
  if constexpr (detail::AllocatesOn<R, StreamRef>)
    return resource.allocate(stream, bytes, alignment);
  else if constexpr (detail::AllocatesOn<R, native::stream>)
    return resource.allocate(stream.native(), bytes, alignment);
  else
    return resource.allocate_async(bytes, alignment, stream.native());
}
/// Deallocates the block. @throws what the resource throws
template <StreamOrderedResource R>
void deallocate_to(R& resource, StreamRef stream, void* pointer, std::size_t bytes,
                   std::size_t alignment) {
  if constexpr (detail::AllocatesOn<R, StreamRef>)
    resource.deallocate(stream, pointer, bytes, alignment);
  else if constexpr (detail::AllocatesOn<R, native::stream>)
    resource.deallocate(stream.native(), pointer, bytes, alignment);
  else
    resource.deallocate_async(pointer, bytes, alignment, stream.native());
}

namespace detail {

[[nodiscard]] constexpr auto& pointed_to(auto& object) noexcept { return object; }
[[nodiscard]] constexpr auto& pointed_to(auto* pointer) noexcept { return *pointer; }
/// The resource that a handle refers to: the handle itself, or the object behind a std::ref or a
/// smart pointer.
template <class R>
[[nodiscard]] auto& resource_behind(R& handle) noexcept {
  if constexpr (StreamOrderedResource<R>)
    return handle;
  else
    return pointed_to(handle.get());
}
/// What the constructor of a buffer accepts as a resource.
template <class R>
concept ResourceHandle = StreamOrderedResource<R> || requires(R& handle) {
  requires StreamOrderedResource<std::remove_cvref_t<decltype(pointed_to(handle.get()))>>;
};

/// A type-erased resource of the program, shared by the buffers that allocate from it.
class AnyResource {
 public:
  AnyResource() = default;
  AnyResource(const AnyResource&) = delete;
  AnyResource& operator=(const AnyResource&) = delete;
  virtual ~AnyResource() = default;
  [[nodiscard]] virtual void* take(StreamRef stream, std::size_t bytes) = 0;
  virtual void give_back(StreamRef stream, void* pointer, std::size_t bytes) = 0;

 private:
  friend class SharedResource;
  std::atomic<std::size_t> owners_{1};
};

/// A counted reference to a resource, or null. It has the size of a pointer, so that buffers
/// without a resource stay small.
class SharedResource {
 public:
  SharedResource() noexcept = default;
  /// Creates the first reference.
  explicit SharedResource(AnyResource* resource) noexcept : resource_{resource} {}
  SharedResource(const SharedResource& other) noexcept : resource_{other.resource_} {
    if (resource_ != nullptr) resource_->owners_.fetch_add(1, std::memory_order_relaxed);
  }
  SharedResource(SharedResource&& other) noexcept
      : resource_{std::exchange(other.resource_, nullptr)} {}
  SharedResource& operator=(SharedResource other) noexcept {
    std::swap(resource_, other.resource_);
    return *this;
  }
  ~SharedResource() {
    if (resource_ != nullptr) drop();
  }

  [[nodiscard]] AnyResource* get() const noexcept { return resource_; }
  [[nodiscard]] AnyResource& operator*() const noexcept { return *resource_; }
  [[nodiscard]] explicit operator bool() const noexcept { return resource_ != nullptr; }

 private:
  void drop() const noexcept;
  AnyResource* resource_ = nullptr;
};

template <ResourceHandle R>
class KeptResource final : public AnyResource {
 public:
  static constexpr std::size_t alignment =
      256;  // In bytes; kernels and record_stream() rely on it.
  explicit KeptResource(R handle) : handle_{std::move(handle)} {}
  [[nodiscard]] void* take(StreamRef stream, std::size_t bytes) override {
    return allocate_from(resource_behind(handle_), stream, bytes, alignment);
  }
  void give_back(StreamRef stream, void* pointer, std::size_t bytes) override {
    deallocate_to(resource_behind(handle_), stream, pointer, bytes, alignment);
  }

 private:
  R handle_;
};
template <ResourceHandle R>
[[nodiscard]] SharedResource keep_resource(R handle) {
  return SharedResource{new KeptResource<R>(std::move(handle))};
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
