// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Buffers: pinned host memory, which copy engines reach directly, and device memory, which kernels
/// work on.
#pragma once

#include <runnel/copy.hpp>
#include <runnel/current.hpp>
#include <runnel/detail/access.hpp>
#include <runnel/detail/owned_array.hpp>
#include <runnel/detail/refused.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/pinned_pool.hpp>
#include <runnel/stream.hpp>
#include <runnel/stream_ordered_resource.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// count * size. @throws errc::out_of_memory if that does not fit into std::size_t
[[nodiscard]] std::size_t bytes_for(std::size_t count, std::size_t size);
[[nodiscard]] void* allocate_pinned(std::size_t bytes, bool write_combined);
void free_pinned(void* pointer) noexcept;
[[nodiscard]] void* mapped_pointer(void* pointer, Device device);
/// From the resource, if there is one, else from the device's own memory.
[[nodiscard]] void* allocate_device(StreamRef stream, std::size_t bytes,
                                    AnyResource* resource = nullptr);

// what few blocks of device memory have: a resource, and streams that use the block besides its
// owner
struct BlockExtras;
/// Owns the extras of a block, or none. It is as large as a pointer, so that a buffer without them
/// is moved fast.
class OwnedExtras {
 public:
  OwnedExtras() noexcept = default;
  /// @throws std::bad_alloc if there is a resource
  explicit OwnedExtras(const SharedResource& resource)
      : extras_{resource ? make(resource) : nullptr} {}
  OwnedExtras(OwnedExtras&& other) noexcept : extras_{std::exchange(other.extras_, nullptr)} {}
  OwnedExtras& operator=(OwnedExtras other) noexcept {
    std::swap(extras_, other.extras_);
    return *this;
  }
  ~OwnedExtras() {
    if (extras_ != nullptr) drop();
  }

  [[nodiscard]] BlockExtras* get() const noexcept { return extras_; }
  [[nodiscard]] SharedResource resource() const noexcept {
    return extras_ != nullptr ? resource_of(*extras_) : SharedResource{};
  }
  /// Makes extras if there are none. @throws std::bad_alloc
  [[nodiscard]] BlockExtras& made() {
    if (extras_ == nullptr) extras_ = make({});
    return *extras_;
  }

 private:
  [[nodiscard]] static BlockExtras* make(const SharedResource& resource);
  [[nodiscard]] static SharedResource resource_of(const BlockExtras& extras) noexcept;
  void drop() const noexcept;
  BlockExtras* extras_ = nullptr;
};

/// Adds the stream to the block's other streams.
void add_device_use(OwnedExtras& extras, StreamRef owner, StreamRef stream);
/// Takes what is in the extras.
void free_device(void* pointer, std::size_t bytes, StreamRef stream, int device,
                 BlockExtras* extras) noexcept;
/// Ends the use by the owner, without a free.
void release_device(StreamRef owner);
/// Makes `stream` the owner. The former owner becomes one of the other streams.
void change_owner(StreamRef& owner, int device, OwnedExtras& extras, StreamRef stream);

void record_block_use(StreamRef stream, const void* pointer, std::optional<MemoryKind> kind);

/// The device with this ordinal; none for -1.
[[nodiscard]] inline std::optional<Device> device_if_any(int ordinal) noexcept {
  return ordinal >= 0 ? std::optional{Device{ordinal}} : std::nullopt;
}

struct PinnedOwner {
  static constexpr MemoryKind kind = MemoryKind::pinned;
  static void free(void* pointer, std::size_t) noexcept { free_pinned(pointer); }
};
struct DeviceOwner {
  static constexpr MemoryKind kind = MemoryKind::device;
  void free(void* pointer, std::size_t bytes) noexcept {
    free_device(pointer, bytes, stream_, device_, extras_.get());
  }

  StreamRef stream_ = Access::ref(nullptr, 0);
  int device_ = -1;
  OwnedExtras extras_;
};

/// T is U, or U with const added: what a span of U converts to.
template <class U, class T>
concept ElementsOf = std::is_convertible_v<U (*)[], T (*)[]>;
}  // namespace detail

/// Options of pinned memory.
struct PinnedOptions {
  /// True: the host writes the memory faster and devices read it faster, but the host reads it very
  /// slowly. False is the default. A backend without such memory gives plain pinned memory.
  bool write_combined = false;
};

/// A view of elements in device memory. `data()` is for kernels and copies; the host must not
/// follow it.
template <class T>
class DeviceSpan {
 public:
  static constexpr MemoryKind memory_kind =
      MemoryKind::device;  ///< tells copies the kind of memory, so that they need not ask the
                           ///< runtime

  constexpr DeviceSpan() noexcept = default;
  /// `size` elements that start at `data`.
  constexpr DeviceSpan(T* data, std::size_t size) noexcept : data_{data}, size_{size} {}
  /// A span of T as a span of const T.
  template <detail::ElementsOf<T> U>
  constexpr DeviceSpan(DeviceSpan<U> other) noexcept : data_{other.data()}, size_{other.size()} {}

  ///@{ As of a std::span.
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  /// @} `count` elements that start at `offset`; without a count, all that follow `offset`.
  /// Requires: offset + count <= size().
  /// @throws errc::invalid_argument otherwise
  [[nodiscard]] constexpr DeviceSpan subspan(std::size_t offset,
                                             std::size_t count = std::dynamic_extent) const {
    require_part(offset <= size_ && (count == std::dynamic_extent || count <= size_ - offset));
    return {data_ + offset, count == std::dynamic_extent ? size_ - offset : count};
  }
  /// @{ The first, or the last, `count` elements. Requires: count <= size(). @throws
  /// errc::invalid_argument otherwise
  [[nodiscard]] constexpr DeviceSpan first(std::size_t count) const {
    require_part(count <= size_);
    return {data_, count};
  }
  [[nodiscard]] constexpr DeviceSpan last(std::size_t count) const {
    require_part(count <= size_);
    return {data_ + (size_ - count), count};
  }
  ///@}

 private:
  static constexpr void require_part(bool is_within) {
    if (!is_within) [[unlikely]]
      detail::throw_invalid_argument("take a part of a span", "the part ends beyond the span");
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of pinned host memory, uninitialised. The host uses it like any array;
/// copies from and to it are direct. The memory comes from the pinned pool (pinned_pool.hpp). A
/// buffer may be destroyed while work uses it: the pool hands the memory out again only when every
/// stream that used it has completed that work. Copies and fills record their use themselves; a
/// kernel or a host function of your own needs record_stream(). Neither constructor nor destructor
/// waits for other streams, except that an allocation which finds no room waits at most a second
/// for memory that is on its way back to the runtime.
template <class T>
class PinnedBuffer : public detail::OwnedHostArray<T, detail::PinnedOwner> {
  using Array = detail::OwnedHostArray<T, detail::PinnedOwner>;

 public:
  /// An empty buffer.
  PinnedBuffer() noexcept = default;
  /// `size` elements, aligned to 256 bytes. @throws errc::out_of_memory
  explicit PinnedBuffer(std::size_t size, PinnedOptions options = {})
      : Array{detail::allocate_pinned(detail::bytes_for(size, sizeof(T)), options.write_combined),
              size,
              {}} {}

  /// Records that `stream` uses this memory: it is handed out again only after the work submitted
  /// to that stream until this buffer is destroyed. The function runnel::record_stream() does it
  /// for any view of the memory.
  void record_stream(StreamRef stream) const {
    if (this->data() != nullptr) detail::record_block_use(stream, this->data(), MemoryKind::pinned);
  }
  /// The address at which kernels of `device` reach this memory, without a copy; null for an empty
  /// buffer.
  /// @throws errc::not_supported or the runtime's own error if the memory cannot be mapped
  [[nodiscard]] T* device_pointer(Device device = Device::current()) const {
    void* const memory = const_cast<T*>(this->data());
    return memory != nullptr ? static_cast<T*>(detail::mapped_pointer(memory, device)) : nullptr;
  }
};

/// Owns `size()` elements of device memory, uninitialised. It is allocated and freed in the order
/// of a stream: work submitted to that stream after the constructor may use the memory, and the
/// memory is freed after the work submitted to it before the destructor. Order other streams by
/// events, and name them with record_stream(), so that the memory is freed after their work too. A
/// stream may be destroyed before its buffers. A buffer that was moved from is empty: it has no
/// elements, no resource, and no stream until it gets one by set_stream() or resize().
template <class T>
class DeviceBuffer : public detail::OwnedArray<T, detail::DeviceOwner> {
  using Array = detail::OwnedArray<T, detail::DeviceOwner>;

 public:
  /// An empty buffer without a stream.
  DeviceBuffer() noexcept = default;
  /// `size` elements on the stream's device. @throws errc::out_of_memory
  explicit DeviceBuffer(std::size_t size, StreamRef stream = current_stream())
      : Array{detail::allocate_device(stream, detail::bytes_for(size, sizeof(T))),
              size,
              {stream, stream.device().ordinal(), {}}} {}
  /// `size` elements from a resource of your own: a StreamOrderedResource, which the buffer keeps a
  /// copy of until the block is given back, or a std::ref or std::shared_ptr to one. Requires: its
  /// memory is memory of the stream's device; what std::ref refers to outlives the block.
  /// docs/memory.md says when and how the resource is called. @throws what the resource throws
  template <detail::ResourceHandle R>
  explicit DeviceBuffer(std::size_t size, R resource, StreamRef stream = current_stream())
      : DeviceBuffer{size, detail::OwnedExtras{detail::keep_resource(std::move(resource))},
                     stream} {}
  /// @cond
  template <detail::TemporaryStream S>
  DeviceBuffer RUNNEL_REFUSED(
      "a temporary stream ends at once: give it a name, and keep it as long as what uses it",
      std::size_t, S&&);
  template <detail::ResourceHandle R, detail::TemporaryStream S>
  DeviceBuffer RUNNEL_REFUSED(
      "a temporary stream ends at once: give it a name, and keep it as long as what uses it",
      std::size_t, R, S&&);
  template <detail::TemporaryStream S>
  DeviceBuffer RUNNEL_REFUSED(
      "a temporary stream ends at once: give it a name, and keep it as long as what uses it",
      const DeviceBuffer&, S&&);
  template <class R>
    requires(!detail::ResourceHandle<R>)
  DeviceBuffer RUNNEL_REFUSED(
      "a resource has allocate(stream, bytes, alignment) and deallocate(stream, pointer, bytes, "
      "alignment)",
      std::size_t, R, StreamRef);
  /// @endcond
  /// As many elements as `other` has, from the same resource, on the stream's device, and a copy of
  /// them, enqueued in the stream. Requires: what writes `other` comes before in that stream or by
  /// an event, and `other` is freed after the copy: name the stream with other.record_stream() if
  /// it is not the other's own. @throws errc::out_of_memory
  DeviceBuffer(const DeviceBuffer& other, StreamRef stream)
      : DeviceBuffer{other.size(), detail::OwnedExtras{other.extras_.resource()}, stream} {
    copy_front(other, stream);
  }

  ///@{ A view for kernels and copies.
  [[nodiscard]] DeviceSpan<T> span() noexcept { return {this->data(), this->size()}; }
  [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {this->data(), this->size()}; }
  operator DeviceSpan<T>() noexcept { return span(); }
  operator DeviceSpan<const T>() const noexcept { return span(); }
  /// @} @{ Views of a part, as DeviceSpan has them. @throws errc::invalid_argument for a part that
  /// ends beyond the buffer
  [[nodiscard]] DeviceSpan<T> subspan(std::size_t offset, std::size_t count = std::dynamic_extent) {
    return span().subspan(offset, count);
  }
  [[nodiscard]] DeviceSpan<const T> subspan(std::size_t offset,
                                            std::size_t count = std::dynamic_extent) const {
    return span().subspan(offset, count);
  }
  [[nodiscard]] DeviceSpan<T> first(std::size_t count) { return span().first(count); }
  [[nodiscard]] DeviceSpan<const T> first(std::size_t count) const { return span().first(count); }
  [[nodiscard]] DeviceSpan<T> last(std::size_t count) { return span().last(count); }
  [[nodiscard]] DeviceSpan<const T> last(std::size_t count) const { return span().last(count); }
  /// @} The stream in whose order the memory is freed; is_valid() is false for an empty buffer
  /// without a stream.
  [[nodiscard]] StreamRef stream() const noexcept { return this->stream_; }
  /// The device that the memory is on; empty for an empty buffer without a stream.
  [[nodiscard]] std::optional<Device> device() const noexcept {
    return detail::device_if_any(this->device_);
  }
  /// Records that `stream` uses this memory: it is freed only after the work submitted to that
  /// stream until this buffer is destroyed. For several threads at a time, and for a part of the
  /// memory, there is the function runnel::record_stream().
  void record_stream(StreamRef stream) {
    if (this->data() != nullptr) detail::add_device_use(this->extras_, this->stream_, stream);
  }
  /// From now on the memory is freed in the order of `stream`, which is of the same device. Streams
  /// that used the memory so far, the former stream too, stay named as by record_stream(). @throws
  /// errc::invalid_argument for a stream of another device, if there are elements
  void set_stream(StreamRef stream) {
    if (this->data() != nullptr)
      return detail::change_owner(this->stream_, this->device_, this->extras_, stream);
    this->device_ = stream.device().ordinal();
    this->stream_ = stream;
  }
  /// @cond
  void set_stream RUNNEL_REFUSED(
      "a temporary stream ends at once: give it a name, and keep it as long as what uses it",
      Stream&&);
  void set_stream RUNNEL_REFUSED(
      "a temporary stream ends at once: give it a name, and keep it as long as what uses it",
      StreamLease&&);
  /// @endcond
  /// Changes the number of elements. They move to another block of the same resource: the first
  /// ones keep their values, new ones are uninitialised, and pointers into the buffer are not valid
  /// any more. Allocating, copying and freeing go into the order of stream(), or of the current
  /// stream if there is none; nothing waits. If it throws, the buffer is as it was. @throws
  /// errc::out_of_memory
  void resize(std::size_t size) {
    if (size == this->size() && this->stream_.id() != 0) return;
    const StreamRef stream = this->stream_.id() != 0 ? this->stream_ : current_stream();
    DeviceBuffer fresh{size, detail::OwnedExtras{this->extras_.resource()}, stream};
    fresh.copy_front(*this, stream);
    *this = std::move(fresh);
  }
  /// Gives the elements to the caller. This buffer is empty afterwards. The caller frees the block
  /// after all work that uses it, with
  /// `DeviceResource{device}.deallocate(stream, span.data(), span.size_bytes())`, or gives it back
  /// to the resource that it came from, with the alignment 256. An empty span if there are no
  /// elements.
  [[nodiscard]] DeviceSpan<T> release() {
    const DeviceSpan<T> released = span();
    if (!released.empty()) detail::release_device(this->stream_);
    this->forget();
    return released;
  }

 private:
  DeviceBuffer(std::size_t size, detail::OwnedExtras extras, StreamRef stream)
      : Array{detail::allocate_device(stream, detail::bytes_for(size, sizeof(T)),
                                      extras.resource().get()),
              size,
              {stream, stream.device().ordinal(), std::move(extras)}} {}
  void copy_front(const DeviceBuffer& from, StreamRef stream) {
    const std::size_t bytes = std::min(from.size(), this->size()) * sizeof(T);
    detail::copy_known(stream, this->data(), MemoryKind::device, from.data(), MemoryKind::device,
                       bytes, Pageable::stage);
  }
};

/// Records that `stream` uses the block that holds `pointer`, which may point to any place within
/// it: a block of a DeviceBuffer or of a DeviceResource is freed, and a block of the pinned pool is
/// handed out again, only after the work submitted to that stream until then, that is until the
/// block is given back. Several threads may call this for one block at a time. Copies and fills by
/// runnel record their use of pinned memory themselves. Requires: the block is not freed meanwhile.
/// @throws errc::invalid_argument for null and for other memory
void record_stream(StreamRef stream, const void* pointer);
/// The same for the block that a buffer, a span or another view lies in. An empty view is nothing
/// to do.
template <detail::memory_range View>
void record_stream(StreamRef stream, const View& view) {
  if (std::size(view) > 0)
    detail::record_block_use(stream, std::data(view), detail::kind_by_type<View>());
}

}  // namespace runnel::inline RUNNEL_ABI
