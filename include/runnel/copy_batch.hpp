// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_copies
/// Many copies by one call.
#pragma once

#include <runnel/copy.hpp>

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>

namespace runnel::inline RUNNEL_ABI {

/// `bytes` bytes from `from` to `to`, as in copy_bytes(). A kind that is given is not asked for,
/// which saves most of a small copy's cost.
struct CopyOperation {
  void* to;                                            ///< any memory
  const void* from;                                    ///< any memory
  std::size_t bytes;                                   ///< 0 is nothing to do
  std::optional<MemoryKind> to_kind = std::nullopt;    ///< of `to`, where it is known
  std::optional<MemoryKind> from_kind = std::nullopt;  ///< of `from`, where it is known
};

/// All elements of `from` to `to`, as in copy(). @throws errc::invalid_argument for sizes that
/// differ or overflow
template <class To, detail::CopiedTo<To> From>
[[nodiscard]] CopyOperation copy_operation(To&& to, From&& from) {
  using T = detail::element_of<To>;
  detail::require_same_size(std::size(to), std::size(from));
  return {std::data(to), std::data(from),
          detail::byte_size(std::size(from), sizeof(T), "copy a batch"), detail::kind_by_type<To>(),
          detail::kind_by_type<From>()};
}

/// @cond
// Mistakes, as for copy().
template <class To, detail::WronglyCopiedTo<detail::Fault::pointer, To> From>
CopyOperation copy_operation
    RUNNEL_REFUSED("a pointer has no size: write CopyOperation{to, from, bytes}", To&&, From&&);
template <class To, detail::WronglyCopiedTo<detail::Fault::kokkos, To> From>
CopyOperation copy_operation RUNNEL_REFUSED("a Kokkos view: pass kokkos::span(view)", To&&, From&&);
template <class To, detail::WronglyCopiedTo<detail::Fault::temporary, To> From>
CopyOperation copy_operation RUNNEL_REFUSED(
    "a temporary container ends before the copy: give it a name and keep it until the stream has "
    "passed",
    To&&, From&&);
template <class To, detail::WronglyCopiedTo<detail::Fault::read_only, To> From>
CopyOperation copy_operation RUNNEL_REFUSED(
    "the destination is read-only: the order is copy_operation(to, from)", To&&, From&&);
template <class To, detail::WronglyCopiedTo<detail::Fault::other_type, To> From>
CopyOperation copy_operation RUNNEL_REFUSED(
    "source and destination have different element types: copies convert nothing", To&&, From&&);
template <class To, detail::WronglyCopiedTo<detail::Fault::not_bytes, To> From>
CopyOperation copy_operation RUNNEL_REFUSED(
    "the elements are not trivially copyable, so they cannot be copied as bytes", To&&, From&&);
template <class To, class T>
CopyOperation copy_operation RUNNEL_REFUSED(
    "a braced list ends before the copy: give it a name, as in const std::array values{1, 2, 3}",
    To&&, std::initializer_list<T>&&);
/// @endcond

/// How many of a batch's operations had which CopyResult. They are counted, and not reduced to one
/// CopyResult as in copy_3d(), because the operations of a batch belong to different memory.
struct CopyBatchResult {
  std::size_t nothing = 0;  ///< there was nothing to do
  std::size_t direct = 0;   ///< enqueued as they are
  std::size_t staged = 0;   ///< enqueued through pinned memory
  std::size_t inlined = 0;  ///< small, and done at the call
  std::size_t blocked = 0;  ///< the caller was held
  friend constexpr bool operator==(const CopyBatchResult&,
                                   const CopyBatchResult&) noexcept = default;
};

/// All operations, after the work submitted to the stream so far and before later work, in no order
/// among themselves: none may write what another reads or writes. Few runtime calls where there is
/// such a call. Operations between pageable memory and a device are staged together, all to the
/// device and all to the host; fewer than 8 of them, with 256 KiB or less in all, go one by one, as
/// copy_bytes(). Both sides of each stay alive, the source unchanged, until the stream has
/// completed the batch.
/// @throws errc::invalid_argument and, for Pageable::refuse, errc::not_permitted, before anything
/// is enqueued. The text names the operation, as in "operations[3] of 8". Memory that lies in two
/// registrations is found only when the runtime refuses it: then, and after other errors of the
/// runtime, some operations may have been enqueued, so wait for the stream before you use their
/// memory
CopyBatchResult copy_batch(StreamRef stream, std::span<const CopyOperation> operations,
                           Pageable policy = default_pageable());
/// The same with options. They count for each operation; its own kinds of memory go before those of
/// the options.
CopyBatchResult copy_batch(StreamRef stream, std::span<const CopyOperation> operations,
                           const CopyOptions& options);

}  // namespace runnel::inline RUNNEL_ABI
