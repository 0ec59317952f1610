// SPDX-License-Identifier: Apache-2.0
/// Copies and fills in stream order. The direction follows from the pointers. No form waits for earlier work (but see `Pageable::block`);
/// a copy of up to 256 KiB may take some microseconds in the call. Both sides must stay alive, and the source unchanged, until the stream
/// has completed the copy. Every refusal (`errc::invalid_argument`) comes before anything is enqueued. Zero bytes are nothing to do, with
/// null pointers too.
#pragma once

#include <runnel/current.hpp>
#include <runnel/detail/byte_size.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/stream.hpp>

#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>

namespace runnel::inline RUNNEL_ABI {

/// What a copy does about pageable host memory, which copy engines cannot reach.
enum class Pageable {
  stage,   ///< copy it through pinned memory; the caller is not held. Memory that is pinned in parts only is always copied so
  block,   ///< the driver's own way, which holds the caller: at the return pageable memory may be reused, or read
  refuse,  ///< throw `errc::not_permitted`
};

/// What a copy did.
enum class CopyResult {
  nothing,  ///< there was nothing to do
  direct,   ///< enqueued as it is; the copy engine reads and writes the memory itself
  staged,   ///< enqueued through pinned memory
  inlined,  ///< small, and done at the call, in some microseconds: pageable memory may be reused, or read, at once
  blocked,  ///< the caller was held, see `Pageable::block`
};

/// The calling thread's policy where a copy names none; `Pageable::stage` at first.
[[nodiscard]] Pageable default_pageable() noexcept;
/// Sets it, for the calling thread.
void set_default_pageable(Pageable policy) noexcept;

/// `bytes` from `from` to `to`. @throws errc::invalid_argument for null with a size and for ranges that overlap in part.
CopyResult copy_bytes(StreamRef stream, void* to, const void* from, std::size_t bytes, Pageable policy = default_pageable());
/// On the current stream.
inline CopyResult copy_bytes(void* to, const void* from, std::size_t bytes) { return copy_bytes(current_stream(), to, from, bytes); }

/// `height` rows of `width` bytes; row i starts i * pitch bytes after the first, on each side. @throws errc::invalid_argument also for
/// a pitch below the width and for sizes that overflow.
CopyResult copy_2d(StreamRef stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                   std::size_t height, Pageable policy = default_pageable());

/// Sets `bytes` bytes at `to`.
void fill_bytes(StreamRef stream, void* to, unsigned char value, std::size_t bytes);
/// Sets `height` rows of `width` bytes.
void fill_2d(StreamRef stream, void* to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height);

namespace detail {
template <class R>
concept memory_range = requires(R& range) {
  {*std::data(range)};
  { std::size(range) } -> std::convertible_to<std::size_t>;
}
// A Kokkos view has data() and size() too, and its elements need not lie side by side: kokkos::copy_async() knows.
&&!requires(R & range) { range.span_is_contiguous(); };
template <class R>
using element_of = std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>;

/// What kind of memory a type always holds; nothing where the runtime has to be asked, which costs a call.
template <class R>
[[nodiscard]] constexpr std::optional<MemoryKind> kind_by_type() noexcept {
  constexpr const MemoryKind* kind = kind_of_range<std::remove_cvref_t<R>>();
  return kind != nullptr ? std::optional{*kind} : std::nullopt;
}

void require_same_size(std::size_t to, std::size_t from);
CopyResult copy_known(StreamRef stream, void* to, std::optional<MemoryKind> to_kind, const void* from, std::optional<MemoryKind> from_kind,
                      std::size_t bytes, Pageable policy);
/// Repeats the `size` bytes at `value` `count` times.
void fill_pattern(StreamRef stream, void* to, std::optional<MemoryKind> kind, const void* value, std::size_t size, std::size_t count);
}  // namespace detail

/// All elements of `from` to `to`, which has as many of the same type: vectors, arrays, spans, buffers; host or device, whichever.
template <detail::memory_range To, detail::memory_range From>
CopyResult copy(StreamRef stream, To&& to, const From& from, Pageable policy = default_pageable()) {
  using T = detail::element_of<To>;
  using U = std::remove_const_t<detail::element_of<const From>>;
  static_assert(!std::is_const_v<T>, "copy: the destination is read-only");
  static_assert(std::is_same_v<T, U>, "copy: source and destination have different element types");
  static_assert(std::is_trivially_copyable_v<T>, "copy: only trivially copyable elements can be moved as bytes");
  detail::require_same_size(std::size(to), std::size(from));
  return detail::copy_known(stream, std::data(to), detail::kind_by_type<To>(), std::data(from), detail::kind_by_type<From>(),
                            detail::byte_size(std::size(from), sizeof(T), "copy"), policy);
}
/// On the current stream.
template <detail::memory_range To, detail::memory_range From>
CopyResult copy(To&& to, const From& from) {
  return runnel::copy(current_stream(), to, from);
}

/// Sets every element of `to` to `value`.
template <detail::memory_range To>
void fill(StreamRef stream, To&& to, const std::type_identity_t<detail::element_of<To>>& value) {
  using T = detail::element_of<To>;
  static_assert(!std::is_const_v<T>, "fill: the destination is read-only");
  static_assert(std::is_trivially_copyable_v<T>, "fill: only trivially copyable elements can be set as bytes");
  detail::fill_pattern(stream, std::data(to), detail::kind_by_type<To>(), &value, sizeof(T), std::size(to));
}
/// On the current stream.
template <detail::memory_range To>
void fill(To&& to, const std::type_identity_t<detail::element_of<To>>& value) {
  runnel::fill(current_stream(), to, value);
}

}  // namespace runnel::inline RUNNEL_ABI
