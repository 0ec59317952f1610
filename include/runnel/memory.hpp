// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// Buffers: pinned host memory, which copy engines reach directly, and device memory, which kernels
/// work on.
#pragma once

#include <runnel/copy.hpp>
#include <runnel/detail/device_code.hpp>
#include <runnel/detail/owned_array.hpp>
#include <runnel/pinned_pool.hpp>
#include <runnel/stream_ordered_resource.hpp>

#include <algorithm>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// count * size. @throws errc::out_of_memory if that does not fit into std::size_t
[[nodiscard]] std::size_t bytes_for(std::size_t count, std::size_t size);
[[nodiscard]] void* allocate_pinned(std::size_t bytes, bool write_combined);
void free_pinned(void* pointer) noexcept;
[[nodiscard]] void* mapped_pointer(void* pointer, Device device);
/// Allocates from the resource, or from the device's own memory if `resource` is null.
[[nodiscard]] void* allocate_device(StreamRef stream, std::size_t bytes,
                                    AnyResource* resource = nullptr);

// What only few blocks of device memory need: a resource, and the streams that use the block
// besides its owner.
struct BlockFree;
/// Owns the extras of a block, or nothing. It has the size of a pointer, so that moving a buffer
/// without extras is cheap.
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

  [[nodiscard]] BlockFree* get() const noexcept {
    return __atomic_load_n(&extras_, __ATOMIC_ACQUIRE);  // Another thread may make them.
  }
  [[nodiscard]] BlockFree* release() noexcept { return std::exchange(extras_, nullptr); }
  [[nodiscard]] SharedResource resource() const noexcept {
    const BlockFree* const extras = get();
    return extras != nullptr ? resource_of(*extras) : SharedResource{};
  }
  /// Creates the extras if there are none. Several threads may call it at a time. @throws
  /// std::bad_alloc
  [[nodiscard]] BlockFree& made();

 private:
  [[nodiscard]] static BlockFree* make(const SharedResource& resource);
  [[nodiscard]] static SharedResource resource_of(const BlockFree& extras) noexcept;
  void drop() const noexcept;
  BlockFree* extras_ = nullptr;
};

/// Adds the stream to the block's other streams. Several threads may call it at a time.
void add_device_use(OwnedExtras& extras, StreamRef owner, StreamRef stream);
/// The same for a copy, which reports an ended stream itself. Requires: `stream` is not the owner.
void add_copy_use(OwnedExtras& extras, StreamRef stream);
/// Makes the stream, or the caller if it is null, wait for the block's streams.
void wait_for_device_uses(const StreamRef* waiting, const void* pointer, std::size_t bytes,
                          const OwnedExtras& extras, StreamRef owner);
/// Frees the block in the order of its streams.
void free_device(void* pointer, std::size_t bytes, StreamRef stream, int device,
                 OwnedExtras extras) noexcept;
/// Ends the owner's use without freeing the memory.
void release_device();
/// Makes `stream` the owner. The previous owner becomes one of the other streams.
void change_owner(StreamRef& owner, int device, OwnedExtras& extras, StreamRef stream);

void record_block_use(StreamRef stream, const void* pointer, std::optional<MemoryKind> kind);

/// The device with this ordinal; empty for -1.
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
    free_device(pointer, bytes, stream_, device_, std::move(extras_));
  }

  StreamRef stream_ = Access::ref(nullptr, 0);
  int device_ = -1;
  mutable OwnedExtras extras_;  // Copies from a const buffer record their streams, too.
};

/// A span of U converts to a span of T: T is U, or const U.
template <class U, class T>
concept ElementsOf = std::is_convertible_v<U (*)[], T (*)[]>;
}  // namespace detail

/// Options of pinned memory.
struct PinnedOptions {
  /// True: the host writes the memory faster and devices read it faster, but the host reads it very
  /// slowly (default: false). A backend without such memory allocates plain pinned memory.
  bool write_combined = false;
};

/// A view of elements in device memory, which kernels take by value: there all members work, and
/// `x[i]`. The host must not dereference `data()`, and `x[i]` does not compile in host code.
template <class T>
class DeviceSpan {
 public:
  static constexpr MemoryKind memory_kind =
      MemoryKind::device;  ///< lets copies know the kind of memory without a query of the runtime

  constexpr DeviceSpan() noexcept = default;
  /// A view of the `size` elements that start at `data`.
  RUNNEL_HOST_DEVICE constexpr DeviceSpan(T* data, std::size_t size) noexcept
      : data_{data}, size_{size} {}
  /// Converts a span of T to a span of const T.
  template <detail::ElementsOf<T> U>
  RUNNEL_HOST_DEVICE constexpr DeviceSpan(DeviceSpan<U> other) noexcept
      : data_{other.data()}, size_{other.size()} {}

  ///@{ As in std::span.
  [[nodiscard]] RUNNEL_HOST_DEVICE constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] RUNNEL_HOST_DEVICE constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] RUNNEL_HOST_DEVICE constexpr std::size_t size_bytes() const noexcept {
    return size_ * sizeof(T);
  }
  [[nodiscard]] RUNNEL_HOST_DEVICE constexpr bool empty() const noexcept { return size_ == 0; }
  /// @} A view of the `count` elements that start at `offset`; without a count, of all elements
  /// from `offset` on. Requires: offset + count <= size().
  /// @throws errc::invalid_argument otherwise; a kernel ends with an error
  [[nodiscard]] RUNNEL_HOST_DEVICE constexpr DeviceSpan subspan(
      std::size_t offset, std::size_t count = std::dynamic_extent) const {
    require_part(offset <= size_ && (count == std::dynamic_extent || count <= size_ - offset));
    return {data_ + offset, count == std::dynamic_extent ? size_ - offset : count};
  }
  /// @{ The first, or the last, `count` elements. Requires: count <= size(). @throws
  /// errc::invalid_argument otherwise; a kernel ends with an error
  [[nodiscard]] RUNNEL_HOST_DEVICE constexpr DeviceSpan first(std::size_t count) const {
    require_part(count <= size_);
    return {data_, count};
  }
  [[nodiscard]] RUNNEL_HOST_DEVICE constexpr DeviceSpan last(std::size_t count) const {
    require_part(count <= size_);
    return {data_ + (size_ - count), count};
  }
  ///@}
  /// @cond
  RUNNEL_KERNEL_OPERATOR(
      "the host cannot read device memory: write get(stream, x, i), set(stream, x, i, value); in a "
      "function of launch_host_func, x.data()[i]",
      T&, operator[](std::size_t i) const, { return data_[i]; });
  /// @endcond

 private:
  RUNNEL_HOST_DEVICE static constexpr void require_part(bool is_within) {
    if (!is_within) [[unlikely]]
      RUNNEL_TRAP_OR(
          detail::throw_invalid_argument("take a part of a span", "the part ends beyond the span"));
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of pinned host memory, uninitialised. The host uses it like any array,
/// and copies from and to it are not staged. The memory comes from the pinned pool
/// (pinned_pool.hpp). A buffer may be destroyed while work uses it: the pool reuses the memory only
/// when every stream that used it has completed that work. Copies and fills record their use
/// themselves; a kernel or a host function of your own needs record_stream(). Neither the
/// constructor nor the destructor waits for streams, with one exception: if there is no free
/// memory, the constructor waits at most a second for memory that is being returned to the runtime.
template <class T>
class PinnedBuffer : public detail::OwnedHostArray<T, detail::PinnedOwner> {
  using Array = detail::OwnedHostArray<T, detail::PinnedOwner>;

 public:
  /// An empty buffer.
  PinnedBuffer() noexcept = default;
  /// Allocates `size` elements, aligned to 256 bytes. @throws errc::out_of_memory
  explicit PinnedBuffer(std::size_t size, PinnedOptions options = {})
      : Array{detail::allocate_pinned(detail::bytes_for(size, sizeof(T)), options.write_combined),
              size,
              {}} {}

  /// Records that `stream` uses this memory: the pool reuses it only after the work that is
  /// submitted to that stream before this buffer is destroyed. The function runnel::record_stream()
  /// does the same for any view of the memory.
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
/// events. Copies and fills of the library that are given the buffer record their stream, so that
/// the memory is freed after them, too; for a kernel, and for a copy that is given a span or a
/// pointer, call record_stream(). A stream may be destroyed before its buffers. A moved-from buffer
/// is empty: it has no elements, no resource, and no stream until set_stream() or resize() gives it
/// one.
template <class T>
class DeviceBuffer : public detail::OwnedArray<T, detail::DeviceOwner> {
  using Array = detail::OwnedArray<T, detail::DeviceOwner>;

 public:
  /// An empty buffer without a stream.
  DeviceBuffer() noexcept = default;
  /// Allocates `size` elements on the stream's device. @throws errc::out_of_memory
  explicit DeviceBuffer(std::size_t size, StreamRef stream = current_stream())
      : DeviceBuffer{size, detail::OwnedExtras{}, stream} {}
  /// Allocates `size` elements from a resource of your own: a StreamOrderedResource, of which the
  /// buffer keeps a copy until the block is deallocated, or a std::ref or std::shared_ptr to one.
  /// Requires: the resource allocates memory of the stream's device; the object that std::ref
  /// refers to outlives the block. docs/memory.md says when and how the resource is called. @throws
  /// what the resource throws
  template <detail::ResourceHandle R>
  explicit DeviceBuffer(std::size_t size, R resource, StreamRef stream = current_stream())
      : DeviceBuffer{size, detail::OwnedExtras{detail::keep_resource(std::move(resource))},
                     stream} {}
  /// @cond
  template <detail::TemporaryStream S>
  DeviceBuffer RUNNEL_REFUSED_TEMPORARY_STREAM(std::size_t, S&&);
  template <detail::ResourceHandle R, detail::TemporaryStream S>
  DeviceBuffer RUNNEL_REFUSED_TEMPORARY_STREAM(std::size_t, R, S&&);
  template <detail::TemporaryStream S>
  DeviceBuffer RUNNEL_REFUSED_TEMPORARY_STREAM(const DeviceBuffer&, S&&);
  RUNNEL_REFUSED_OPERATOR(
      "the host cannot read device memory: write get(stream, x, i), set(stream, x, i, value); in a "
      "function of launch_host_func, x.data()[i]; a kernel takes a DeviceSpan",
      operator[](std::size_t) const);
  /// @endcond
  /// Allocates as many elements as `other` has, from the same resource, on the stream's device, and
  /// enqueues a copy of them on the stream. Requires: work that writes `other` is ordered before
  /// the copy, by the same stream or by an event. @throws errc::out_of_memory
  DeviceBuffer(const DeviceBuffer& other, StreamRef stream)
      : DeviceBuffer{other.size(), detail::OwnedExtras{other.extras_.resource()}, stream} {
    copy_front(other, stream);
  }

  ///@{ A view for kernels and copies.
  [[nodiscard]] DeviceSpan<T> span() noexcept { return {this->data(), this->size()}; }
  [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {this->data(), this->size()}; }
  operator DeviceSpan<T>() noexcept { return span(); }
  operator DeviceSpan<const T>() const noexcept { return span(); }
  /// @} @{ Views of a part, as in DeviceSpan. @throws errc::invalid_argument for a part that ends
  /// beyond the buffer
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
  /// The device of the memory; empty for an empty buffer without a stream.
  [[nodiscard]] std::optional<Device> device() const noexcept {
    return detail::device_if_any(this->device_);
  }
  /// Records that `stream` uses this memory: it is freed only after the work that is submitted to
  /// that stream before this buffer is destroyed. Several threads may record at a time. If you have
  /// only a view of a part of the memory, use the function runnel::record_stream().
  void record_stream(StreamRef stream) const {
    if (this->data() != nullptr) detail::add_device_use(this->extras_, this->stream_, stream);
  }
  /// @cond
  friend void record_copy(StreamRef stream, const DeviceBuffer& buffer) {
    if (stream != buffer.stream_ && buffer.data() != nullptr) [[unlikely]]
      detail::add_copy_use(buffer.extras_, stream);
  }
  friend void order_behind_uses(const StreamRef* waiting, const DeviceBuffer& buffer) {
    if (buffer.data() != nullptr)
      detail::wait_for_device_uses(waiting, buffer.data(), buffer.size() * sizeof(T),
                                   buffer.extras_, buffer.stream_);
  }
  /// @endcond
  /// Waits until all streams that use this memory have completed the work that was submitted to
  /// them before: stream(), and those that copies, fills and record_stream() have recorded.
  /// `stream.wait_for_uses(buffer)` makes a stream wait instead.
  /// @throws errc::capture if one of them is being captured, errc::invalid_argument for another
  /// thread's default stream
  void wait_for_uses() const { order_behind_uses(nullptr, *this); }
  /// From now on the memory is freed in the order of `stream`, which is of the same device. The
  /// memory is still freed only after the work of the previous stream and of all recorded streams.
  /// @throws errc::invalid_argument for a stream of another device, if there are elements
  void set_stream(StreamRef stream) {
    if (this->data() != nullptr)
      return detail::change_owner(this->stream_, this->device_, this->extras_, stream);
    this->device_ = stream.device().ordinal();
    this->stream_ = stream;
  }
  /// @cond
  void set_stream RUNNEL_REFUSED_TEMPORARY_STREAM(Stream&&);
  void set_stream RUNNEL_REFUSED_TEMPORARY_STREAM(StreamLease&&);
  /// @endcond
  /// Changes the number of elements. They are copied to another block of the same resource: the
  /// first elements keep their values, new ones are uninitialised, and pointers into the buffer
  /// become invalid. The allocation, the copy and the free are enqueued on stream(), or on the
  /// current stream if there is none; the call does not wait. If it throws, the buffer is
  /// unchanged. @throws errc::out_of_memory
  void resize(std::size_t size) {
    if (size == this->size() && this->stream_.id() != 0) return;
    const StreamRef stream = this->stream_.id() != 0 ? this->stream_ : current_stream();
    DeviceBuffer fresh{size, detail::OwnedExtras{this->extras_.resource()}, stream};
    fresh.copy_front(*this, stream);
    *this = std::move(fresh);
  }
  /// Transfers ownership of the elements to the caller. This buffer is empty afterwards. The caller
  /// frees the block after all work that uses it, with
  /// `DeviceResource{device}.deallocate(stream, span.data(), span.size_bytes())`, or deallocates it
  /// to the resource that it came from, with the alignment 256. Returns an empty span if there are
  /// no elements.
  [[nodiscard]] DeviceSpan<T> release() {
    const DeviceSpan<T> released = span();
    if (!released.empty()) detail::release_device();
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
    record_copy(stream, from);
    copy_bytes(stream, this->data(), from.data(), bytes,
               {.to_kind = MemoryKind::device, .from_kind = MemoryKind::device});
  }
};

/// Records that `stream` uses the block that contains `pointer`, which may point anywhere into it.
/// A block of a DeviceBuffer or of a DeviceResource is then freed, and a block of the pinned pool
/// is reused, only after the work that is submitted to that stream before the block is deallocated.
/// Several threads may call this for one block at a time. Copies and fills by runnel record their
/// use of pinned memory themselves. Requires: the block is not freed meanwhile.
/// @throws errc::invalid_argument for null and for other memory
void record_stream(StreamRef stream, const void* pointer);
/// The same for the block that contains the elements of a buffer, a span or another view. Does
/// nothing for an empty view.
template <detail::memory_range View>
void record_stream(StreamRef stream, const View& view) {
  if (std::size(view) > 0)
    detail::record_block_use(stream, std::data(view), detail::kind_by_type<View>());
}

}  // namespace runnel::inline RUNNEL_ABI
