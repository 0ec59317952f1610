// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_copies
/// Many copies with one call.
#pragma once

#include <runnel/copy.hpp>

namespace runnel::inline RUNNEL_ABI {

/// A copy of `bytes` bytes from `from` to `to`, as by copy_bytes(). If the kind of memory is set,
/// the runtime is not queried for it, which saves most of a small copy's time.
struct CopyOperation {
  void* to;                                            ///< any memory
  const void* from;                                    ///< any memory
  std::size_t bytes;                                   ///< 0: the copy is empty
  std::optional<MemoryKind> to_kind = std::nullopt;    ///< of `to`, if known
  std::optional<MemoryKind> from_kind = std::nullopt;  ///< of `from`, if known
  /// @cond
  // The ids of the streams of the DeviceBuffers that copy_operation() was given, or 0: then the
  // batch records its stream, if it is another one.
  std::uint64_t to_stream = 0, from_stream = 0;
  /// @endcond
};

namespace detail {
template <class R>
[[nodiscard]] std::uint64_t owner_of(const R& range) noexcept {
  if constexpr (requires { record_copy(range.stream(), range); })
    return range.stream().id();
  else
    return 0;
}
}  // namespace detail

/// A copy of all elements of `from` to `to`, as by copy(). @throws errc::invalid_argument for sizes
/// that differ or overflow
template <class To, detail::CopiedTo<To> From>
[[nodiscard]] CopyOperation copy_operation(To&& to, From&& from) {
  using T = detail::element_of<To>;
  detail::require_same_size(std::size(to), std::size(from));
  return {std::data(to),
          std::data(from),
          detail::byte_size(std::size(from), sizeof(T), "copy a batch"),
          detail::kind_by_type<To>(),
          detail::kind_by_type<From>(),
          detail::owner_of(to),
          detail::owner_of(from)};
}

/// @cond
// Overloads that refuse common mistakes, as those of copy().
template <class To, detail::WronglyCopiedTo<detail::Fault::pointer, To> From>
CopyOperation copy_operation
    RUNNEL_REFUSED("a pointer has no size: write CopyOperation{to, from, bytes}", To&&, From&&);
template <class To, detail::WronglyCopiedTo<detail::Fault::temporary, To> From>
CopyOperation copy_operation RUNNEL_REFUSED(
    "a temporary container ends before the copy: give it a name and keep it until the stream has "
    "passed",
    To&&, From&&);
template <class To, detail::WronglyCopiedTo<detail::Fault::read_only, To> From>
CopyOperation copy_operation RUNNEL_REFUSED(
    "the destination is read-only: the order is copy_operation(to, from)", To&&, From&&);
/// @endcond

/// The number of a batch's operations with each CopyResult. They are counted, and not reduced to
/// one CopyResult as in copy_3d(), because the operations of a batch use different memory.
struct CopyBatchResult {
  std::size_t nothing = 0;  ///< the copy was empty
  std::size_t direct = 0;   ///< enqueued without staging
  std::size_t staged = 0;   ///< enqueued through pinned memory
  std::size_t inlined =
      0;  ///< small: pageable memory may be reused, or read, once the call returns
  std::size_t blocked = 0;  ///< the calling thread was blocked
  friend constexpr bool operator==(const CopyBatchResult&,
                                   const CopyBatchResult&) noexcept = default;
};

/// Copies all operations after the work submitted to the stream so far and before later work. The
/// operations are not ordered among themselves: none may write what another reads or writes. If the
/// runtime has a call for batches, a batch needs few runtime calls. Operations between pageable
/// memory and a device are staged together, in one group for each direction; fewer than 8 of them
/// with at most 256 KiB in total are copied one by one, as by copy_bytes(). Both sides of each
/// operation must stay alive, and the source unchanged, until the stream has completed the batch.
/// The options apply to each operation, whose own kinds of memory take precedence over theirs.
/// @throws errc::invalid_argument and, for Pageable::refuse, errc::not_permitted, before anything
/// is enqueued. The text names the operation, as in "operations[3] of 8". Memory that spans two
/// registrations is detected only when the runtime refuses it: then, and after other errors of the
/// runtime, some operations may have been enqueued, so wait for the stream before you use their
/// memory
CopyBatchResult copy_batch(StreamRef stream, std::span<const CopyOperation> operations,
                           const CopyOptions& options = {});
/// The same with a policy alone.
template <std::same_as<Pageable> P>
CopyBatchResult copy_batch(StreamRef stream, std::span<const CopyOperation> operations, P policy) {
  return copy_batch(stream, operations, detail::options_of(policy));
}

}  // namespace runnel::inline RUNNEL_ABI
