// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_copies
/// Copies and fills in stream order. The direction follows from the pointers. No call waits for
/// earlier work (but see `Pageable::block`); a call that copies up to 256 KiB may take some
/// microseconds. Both sides must stay alive, and the source unchanged, until the stream has
/// completed the copy. Invalid arguments (`errc::invalid_argument`) are refused before anything is
/// enqueued. A copy of zero bytes does nothing; its pointers may be null.
#pragma once

#include <runnel/current.hpp>
#include <runnel/detail/byte_size.hpp>
#include <runnel/detail/memory_range.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <optional>

namespace runnel::inline RUNNEL_ABI {

/// What a copy does about pageable host memory, which copy engines cannot reach.
enum class Pageable {
  stage,   ///< copy it through pinned memory; the calling thread is not blocked. Memory of which
           ///< only a part is pinned is always copied this way
  block,   ///< let the driver copy it, which blocks the calling thread: pageable memory may be
           ///< reused, or read, once the call returns. A device may get the bytes later, in the
           ///< order of the stream
  refuse,  ///< throw `errc::not_permitted`
};

/// The calling thread's policy for copies that name none; initially `Pageable::stage`.
[[nodiscard]] Pageable default_pageable() noexcept;
/// Sets the calling thread's policy.
void set_default_pageable(Pageable policy) noexcept;
/// Sets the calling thread's policy for a scope. At the end of the scope, also after an exception,
/// the previous policy is restored.
class [[nodiscard]] PageableGuard {
 public:
  /// Sets the calling thread's policy to `policy`.
  [[nodiscard]] explicit PageableGuard(Pageable policy) noexcept : found_{default_pageable()} {
    set_default_pageable(policy);
  }
  PageableGuard(const PageableGuard&) = delete;
  PageableGuard& operator=(const PageableGuard&) = delete;
  ~PageableGuard() { set_default_pageable(found_); }

 private:
  Pageable found_;
};

/// When a copy may read a pageable source. (Other memory is always read in stream order.)
enum class SourceAccess {
  automatic,  ///< in stream order while work that the library knows of may write the source, else
              ///< at any time from the call on (docs/copies.md lists such work)
  stream_order,  ///< after the work submitted to the stream so far, whoever has enqueued it
  any_time,      ///< at any time from the call on: no running or enqueued work writes the source
};

/// Options of a copy. All of them have defaults. Where a copy takes options, it also takes a policy
/// alone, as in `copy(stream, to, from, Pageable::block)`.
struct CopyOptions {
  /// How pageable memory is copied (default: the thread's policy).
  Pageable pageable = default_pageable();
  /// When a pageable source may be read. Requires for `automatic` (the default): no host function
  /// that was enqueued by raw calls of the runtime writes the source, and no device a part of it
  /// that other code has registered, or they have finished; else say `stream_order`. Requires for
  /// `any_time`: no work that was submitted to any stream writes the source from the call on.
  SourceAccess source = SourceAccess::automatic;
  /// The kind of the destination's memory, if the caller knows it (default: the runtime is queried,
  /// which takes most of a small copy's time). Requires: the kind is correct.
  std::optional<MemoryKind> to_kind = std::nullopt;
  /// The same for the source.
  std::optional<MemoryKind> from_kind = std::nullopt;
};

namespace detail {
template <class O>
concept CopyPolicy = std::same_as<O, CopyOptions> || std::same_as<O, Pageable>;
[[nodiscard]] inline CopyOptions options_of(Pageable policy) { return {.pageable = policy}; }
[[nodiscard]] inline const CopyOptions& options_of(const CopyOptions& options) { return options; }
}  // namespace detail

/// How a copy was carried out. It tells the caller when its memory may be used again, and whether
/// the call blocked. Internally the library distinguishes more routes: docs/architecture.md has a
/// table of them.
enum class CopyResult {
  nothing,  ///< the copy was empty
  direct,   ///< enqueued without staging; the copy engine reads and writes the memory itself
  staged,   ///< enqueued through pinned memory
  inlined,  ///< small: pageable memory may be reused, or read, once the call returns, after some
            ///< microseconds
  blocked,  ///< the calling thread was blocked: pageable memory may be reused, or read; a device
            ///< may get the bytes later, see `Pageable::block`
};
/// The result's identifier, as in "staged".
[[nodiscard]] const char* name(CopyResult result) noexcept;

/// Copies `bytes` bytes from `from` to `to`, in any memory. For 0 bytes it does nothing, and
/// pointers may be null. Both sides must stay alive, and the source unchanged, until the stream has
/// completed the copy. Returns how the copy was carried out.
/// @throws errc::invalid_argument for a null pointer unless `bytes` is 0, and for ranges that
/// overlap in part; for pageable memory errc::not_permitted if the policy refuses it, and
/// errc::capture in a capture, except between two host memories and with Pageable::block
CopyResult copy_bytes(StreamRef stream, void* to, const void* from, std::size_t bytes,
                      const CopyOptions& options = {});
/// The same with a policy alone.
template <std::same_as<Pageable> P>
CopyResult copy_bytes(StreamRef stream, void* to, const void* from, std::size_t bytes, P policy) {
  return copy_bytes(stream, to, from, bytes, detail::options_of(policy));
}
/// The same on the current stream. Both sides must stay alive, and the source unchanged, until the
/// copy is complete.
template <detail::CopyPolicy O = CopyOptions>
CopyResult copy_bytes(void* to, const void* from, std::size_t bytes, const O& options = {}) {
  return copy_bytes(current_stream(), to, from, bytes, options);
}

/// Copies `height` rows of `width` bytes; on each side, row i starts i * pitch bytes after the
/// first. Both sides must stay alive, and the source unchanged, until the stream has completed the
/// copy.
/// @throws as copy_bytes(); errc::invalid_argument also for a pitch below the width and for sizes
/// that overflow
CopyResult copy_2d(StreamRef stream, void* to, std::size_t to_pitch, const void* from,
                   std::size_t from_pitch, std::size_t width, std::size_t height,
                   const CopyOptions& options = {});
/// The same with a policy alone.
template <std::same_as<Pageable> P>
CopyResult copy_2d(StreamRef stream, void* to, std::size_t to_pitch, const void* from,
                   std::size_t from_pitch, std::size_t width, std::size_t height, P policy) {
  return copy_2d(stream, to, to_pitch, from, from_pitch, width, height, detail::options_of(policy));
}
/// The same on the current stream. Both sides must stay alive, and the source unchanged, until the
/// copy is complete.
template <detail::CopyPolicy O = CopyOptions>
CopyResult copy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                   std::size_t width, std::size_t height, const O& options = {}) {
  return copy_2d(current_stream(), to, to_pitch, from, from_pitch, width, height, options);
}

/// The distances between rows and between slices, in bytes.
struct Pitches {
  std::size_t row;    ///< row i of a slice starts i * row bytes after the first
  std::size_t slice;  ///< slice i starts i * slice bytes after the first
};
/// The size of a box of bytes.
struct Extent {
  std::size_t width;   ///< bytes in a row
  std::size_t height;  ///< rows in a slice
  std::size_t depth;   ///< slices
};
/// Copies a box of bytes; each side has its own pitches. This is one copy of the runtime if the
/// slices, or the rows of each slice, are contiguous on both sides; otherwise it is one copy for
/// each slice, or for each row index if there are fewer of those. If one of several copies fails,
/// the earlier ones stay enqueued. The result holds for all of them: it permits reuse of memory at
/// once only if every copy does. Both sides must stay alive, and the source unchanged, until the
/// stream has completed the copy.
/// @throws errc::invalid_argument as copy_2d(), and for a slice pitch that is smaller than the rows
/// of a slice
CopyResult copy_3d(StreamRef stream, void* to, Pitches to_pitches, const void* from,
                   Pitches from_pitches, Extent extent, const CopyOptions& options = {});
/// The same with a policy alone.
template <std::same_as<Pageable> P>
CopyResult copy_3d(StreamRef stream, void* to, Pitches to_pitches, const void* from,
                   Pitches from_pitches, Extent extent, P policy) {
  return copy_3d(stream, to, to_pitches, from, from_pitches, extent, detail::options_of(policy));
}
/// The same on the current stream. Both sides must stay alive, and the source unchanged, until the
/// copy is complete.
template <detail::CopyPolicy O = CopyOptions>
CopyResult copy_3d(void* to, Pitches to_pitches, const void* from, Pitches from_pitches,
                   Extent extent, const O& options = {}) {
  return copy_3d(current_stream(), to, to_pitches, from, from_pitches, extent, options);
}

/// Sets `bytes` bytes at `to`, in any memory, to `value`. Does nothing for 0 bytes.
/// @throws errc::invalid_argument for a null pointer unless `bytes` is 0, errc::capture for
/// pageable memory in a capture, errc::peer_access for memory of a device that the stream's cannot
/// reach
void fill_bytes(StreamRef stream, void* to, unsigned char value, std::size_t bytes);
/// On the current stream.
inline void fill_bytes(void* to, unsigned char value, std::size_t bytes) {
  fill_bytes(current_stream(), to, value, bytes);
}
/// Sets `height` rows of `width` bytes to `value`; row i starts i * pitch bytes after the first.
/// @throws as fill_bytes(); errc::invalid_argument also for a pitch below the width and for sizes
/// that overflow
void fill_2d(StreamRef stream, void* to, std::size_t pitch, unsigned char value, std::size_t width,
             std::size_t height);
/// On the current stream.
inline void fill_2d(void* to, std::size_t pitch, unsigned char value, std::size_t width,
                    std::size_t height) {
  fill_2d(current_stream(), to, pitch, value, width, height);
}

namespace detail {
/// The kind of memory that a type always refers to; empty if it must be queried from the runtime,
/// which costs a call.
template <class R>
[[nodiscard]] constexpr std::optional<MemoryKind> kind_by_type() noexcept {
  if constexpr (requires { std::remove_cvref_t<R>::memory_kind; })
    return std::remove_cvref_t<R>::memory_kind;
  else
    return std::nullopt;
}

void require_same_size(std::size_t to, std::size_t from, const StreamRef* stream = nullptr);
void require_index(std::size_t index, std::size_t size);
/// Copies, and waits for the stream. @throws errc::capture in a capture
void read_element(StreamRef stream, void* to, const void* from, std::optional<MemoryKind> from_kind,
                  std::size_t bytes);
/// Repeats the `size` bytes at `value` `count` times.
void fill_pattern(StreamRef stream, void* to, std::optional<MemoryKind> kind, const void* value,
                  std::size_t size, std::size_t count);
}  // namespace detail

/// Copies all elements of `from` to `to`, which has the same number of elements of the same type.
/// Both may be vectors, arrays, spans or buffers, in host or device memory. Views may be
/// temporaries. Both sides must stay alive, and the source unchanged, until the stream has
/// completed the copy. Returns how the copy was carried out. A kind of memory that follows from a
/// type takes precedence over the one in the options.
/// @throws as copy_bytes(); errc::invalid_argument for sizes that differ
template <class To, detail::CopiedTo<To> From, detail::CopyPolicy O = CopyOptions>
CopyResult copy(StreamRef stream, To&& to, From&& from, const O& policy = {}) {
  using T = detail::element_of<To>;
  CopyOptions options = detail::options_of(policy);
  detail::require_same_size(std::size(to), std::size(from), &stream);
  if (detail::kind_by_type<To>()) options.to_kind = detail::kind_by_type<To>();
  if (detail::kind_by_type<From>()) options.from_kind = detail::kind_by_type<From>();
  detail::record_use(stream, to);
  detail::record_use(stream, from);
  return copy_bytes(stream, std::data(to), std::data(from),
                    detail::byte_size(std::size(from), sizeof(T), "copy"), options);
}
/// The same on the current stream. Both sides must stay alive, and the source unchanged, until the
/// copy is complete.
template <class To, detail::CopiedTo<To> From>
CopyResult copy(To&& to, From&& from) {
  return runnel::copy(current_stream(), std::forward<To>(to), std::forward<From>(from));
}

namespace detail {
/// Takes over the owner before the copy is enqueued: the copy needs the final address of its
/// elements.
template <class To, class From>
CopyResult copy_and_keep(StreamRef stream, To& to, From& from, const CopyOptions& options) {
  Keeping<From> keeping{from};
  prepare_to_keep(stream);
  const CopyResult done = runnel::copy(stream, to, keeping.object(), options);
  try {
    keeping.keep(stream);
  } catch (...) {
    std::error_code code;  // The first exception is the one that is thrown.
    stream.synchronize(code);
    throw;
  }
  return done;
}
}  // namespace detail

/// @{ Copies from a container that is moved or is a temporary,
/// `copy(stream, to, std::move(values))`: the container is kept alive until the stream has
/// completed the copy, as by keep(). If copy() throws, the container is unchanged, and no copy is
/// in progress. Arrays are refused, because moving one copies it.
template <class To, detail::TakenOverBy<To> From, detail::CopyPolicy O = CopyOptions>
CopyResult copy(StreamRef stream, To&& to, From&& from, const O& options = {}) {
  return detail::copy_and_keep(stream, to, from, detail::options_of(options));
}
template <class To, detail::TakenOverBy<To> From>
CopyResult copy(To&& to, From&& from) {
  return detail::copy_and_keep(current_stream(), to, from, {});
}
///@}

/// Sets the element at `index` to `value`, which need not outlive the call. @throws
/// errc::invalid_argument if there is no such element, and what fill() throws
template <detail::Filled To>
void set(StreamRef stream, To&& to, std::size_t index,
         const std::type_identity_t<detail::element_of<To>>& value) {
  detail::require_index(index, std::size(to));
  detail::record_use(stream, to);
  detail::fill_pattern(stream, std::data(to) + index, detail::kind_by_type<To>(), &value,
                       sizeof value, 1);
}
/// Returns the element at `index` as the work submitted to `stream` so far leaves it. Waits for
/// that work as StreamRef::synchronize() does.
/// @throws errc::invalid_argument if there is no such element, errc::capture in a capture
template <class From, class T = std::remove_const_t<detail::element_of<From>>>
  requires detail::memory_range<From> && std::is_trivially_copyable_v<T>
[[nodiscard]] T get(StreamRef stream, From&& from, std::size_t index) {
  detail::require_index(index, std::size(from));
  std::array<unsigned char, sizeof(T)> bytes;
  detail::read_element(stream, bytes.data(), std::data(from) + index, detail::kind_by_type<From>(),
                       sizeof(T));
  return std::bit_cast<T>(bytes);
}

/// Sets every element of `to` to `value`, which need not outlive the call. @throws as fill_bytes();
/// errc::capture in a capture if an element has another size than 1, 2 or 4 bytes, unless all its
/// bytes are equal
template <detail::Filled To>
void fill(StreamRef stream, To&& to, const std::type_identity_t<detail::element_of<To>>& value) {
  using T = detail::element_of<To>;
  detail::record_use(stream, to);
  detail::fill_pattern(stream, std::data(to), detail::kind_by_type<To>(), &value, sizeof(T),
                       std::size(to));
}
/// On the current stream.
template <detail::Filled To>
void fill(To&& to, const std::type_identity_t<detail::element_of<To>>& value) {
  runnel::fill(current_stream(), std::forward<To>(to), value);
}

/// @cond
// Overloads that refuse common mistakes, each with a text that says what to write instead.
#define RUNNEL_REFUSED_COPY(fault, reason)                                                      \
  template <class A, class B, detail::WrongCopy<detail::Fault::fault, A, B> C = detail::Absent, \
            class D = detail::Absent>                                                           \
  CopyResult copy RUNNEL_REFUSED(reason, A&&, B&&, C&& = {}, D&& = {})
RUNNEL_REFUSED_COPY(pointer, "a pointer has no size: write copy_bytes(stream, to, from, bytes)");
RUNNEL_REFUSED_COPY(
    temporary,
    "a temporary container ends before the copy: give it a name and keep it until "
    "the stream has passed, or copy from std::move(vector), which the stream keeps");
RUNNEL_REFUSED_COPY(lost, "the destination is a temporary, which ends before the copy: name it");
RUNNEL_REFUSED_COPY(stream_order, "the stream comes first: the order is copy(stream, to, from)");
RUNNEL_REFUSED_COPY(read_only, "the destination is read-only: the order is copy(stream, to, from)");
RUNNEL_REFUSED_COPY(types, "the elements have two types, and a copy converts nothing");
RUNNEL_REFUSED_COPY(
    scattered,
    "the elements are not in one block: use a std::vector, not of bool, or a std::array");
#undef RUNNEL_REFUSED_COPY
template <class To, class T>
CopyResult copy RUNNEL_REFUSED("a braced list ends before the copy: give it a name", StreamRef,
                               To&&, std::initializer_list<T>&&);
CopyResult copy_bytes RUNNEL_REFUSED("the order is copy_bytes(stream, to, from, bytes)", StreamRef,
                                     std::size_t, const void*, const void*);

template <class A, detail::WrongFill<detail::Fault::pointer, A> B, class C = detail::Absent,
          class D = detail::Absent>
void fill RUNNEL_REFUSED("a pointer has no size: write fill_bytes(stream, to, value, bytes)", A&&,
                         B&&, C&& = {}, D&& = {});
template <class A, detail::WrongFill<detail::Fault::lost, A> B, class C = detail::Absent>
void fill RUNNEL_REFUSED(
    "a temporary container ends before the fill: give it a name and keep it until the stream has "
    "passed",
    A&&, B&&, C&& = {});
template <class To, detail::NoElementOf<To> Value>
void fill RUNNEL_REFUSED("the value does not convert to the type of the elements", StreamRef, To&&,
                         Value&&);
template <class A, detail::StreamBehind<A> B, class C>
void fill RUNNEL_REFUSED("the stream comes first: the order is fill(stream, to, value)", A&&, B&&,
                         C&&);
/// @endcond

}  // namespace runnel::inline RUNNEL_ABI
