// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_communicator
/// One operation of a communicator, without the types of its elements.
#pragma once

#include <runnel/detail/memory_range.hpp>

#include <bit>
#include <complex>

namespace runnel::inline RUNNEL_ABI {

/// The operation that combines elements of several processes into one.
enum class Reduce {
  sum,      ///< the sum
  product,  ///< the product
  min,      ///< the smallest; not for complex numbers
  max       ///< the largest; not for complex numbers
};

namespace detail {

struct CommunicatorState;

enum class Verb : unsigned char {
  all_reduce,
  reduce,
  reduce_scatter,
  broadcast,
  all_gather,
  all_to_all,
  send,
  receive,
  barrier
};

enum class Element : unsigned char {
  bytes,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  complex64,
  complex128
};

/// The type of an element that can be reduced; `bytes` for other elements.
template <class T>
[[nodiscard]] consteval Element arithmetic_type_of() noexcept {
  if constexpr (std::is_same_v<T, std::complex<float>>) return Element::complex64;
  if constexpr (std::is_same_v<T, std::complex<double>>) return Element::complex128;
  if constexpr (std::is_same_v<T, float>) return Element::float32;
  if constexpr (std::is_same_v<T, double>) return Element::float64;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr Element of_size[] = {Element::int8, Element::int16, Element::int32, Element::int64};
    constexpr Element unsigned_of_size[] = {Element::uint8, Element::uint16, Element::uint32,
                                            Element::uint64};
    constexpr auto place = std::bit_width(sizeof(T)) - 1;
    return std::is_signed_v<T> ? of_size[place] : unsigned_of_size[place];
  }
  return Element::bytes;
}

template <class T>
concept Reducible = arithmetic_type_of<T>() != Element::bytes;

/// A span or a buffer of device or managed memory. A temporary buffer is excluded, because it would
/// free the memory at once.
template <class R>
concept DeviceSource =
    memory_range<R> && !owning_temporary<R> && std::is_trivially_copyable_v<element_of<R>> &&
    (std::remove_cvref_t<R>::memory_kind == MemoryKind::device ||
     std::remove_cvref_t<R>::memory_kind == MemoryKind::managed);
/// A DeviceSource whose elements are not const.
template <class R>
concept DeviceTarget = DeviceSource<R> && !std::is_const_v<element_of<R>>;
template <class In, class Out>
concept SameElements = std::is_same_v<std::remove_const_t<element_of<In>>, element_of<Out>>;
template <class R>
concept ReducibleRange = Reducible<std::remove_const_t<element_of<R>>>;

struct Exchange {
  Verb verb;
  Element element;
  Reduce how;
  int peer;                  // The root, or the other process.
  std::size_t element_size;  // In bytes.
  const void* in;
  std::size_t in_count;  // In elements.
  void* out;
  std::size_t out_count;
};

/// Requires: `in` and `out` are the same range for verbs with one range.
template <class In, class Out>
Exchange movement(StreamRef stream, Verb verb, const In& in, const Out& out, int peer) {
  record_use(stream, in);
  record_use(stream, out);
  // The const may belong to a send, which does not write the memory.
  void* const target = const_cast<void*>(static_cast<const void*>(out.data()));
  return {verb,      Element::bytes, Reduce::sum, peer,      sizeof(element_of<const In>),
          in.data(), in.size(),      target,      out.size()};
}
template <class In, class Out>
Exchange reduction(StreamRef stream, Verb verb, const In& in, const Out& out, Reduce how,
                   int peer) {
  Exchange made = movement(stream, verb, in, out, peer);
  made.element = arithmetic_type_of<std::remove_const_t<element_of<const In>>>();
  made.how = how;
  return made;
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
