// SPDX-License-Identifier: Apache-2.0
/// The ranges that copies and fills accept, and the mistakes that they refuse at compile time.
#pragma once

#include <runnel/keep.hpp>

#include <initializer_list>
#include <iterator>
#include <span>

namespace runnel::inline RUNNEL_ABI::detail {

template <class R>
concept memory_range =
    requires(R& range) {
      { *std::data(range) };
      { std::size(range) } -> std::convertible_to<std::size_t>;
    }
    // A Kokkos view has data() and size() too, but its elements need not be contiguous: use
    // kokkos::copy_async().
    && !requires(R& range) { range.span_is_contiguous(); };
template <class R>
using element_of = std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>;

/// Records the stream with a buffer of device memory, so that the memory outlives the work.
template <class R>
void record_use(StreamRef stream, const R& range) {
  if constexpr (requires { record_copy(stream, range); }) record_copy(stream, range);
}

template <class R>
concept array_like = std::is_array_v<R> || requires { std::tuple_size<R>::value; } ||
                     std::is_same_v<R, std::initializer_list<std::remove_const_t<element_of<R>>>>;
/// A range that does not own its elements. The standard's views declare this. It is assumed of any
/// other trivially copyable type whose constness does not extend to the elements, except arrays and
/// braced lists.
template <class R>
concept memory_view =
    std::ranges::enable_borrowed_range<R> || (std::is_trivially_copyable_v<R> && !array_like<R> &&
                                              std::is_same_v<element_of<R>, element_of<const R>>);
/// R is as a forwarding reference deduces it.
template <class R>
concept owning_temporary = !std::is_reference_v<R> && !memory_view<std::remove_cv_t<R>>;
template <class R>
concept pointer_like =
    std::is_pointer_v<std::remove_cvref_t<R>> || std::is_null_pointer_v<std::remove_cvref_t<R>>;

/// A container whose elements are not in one block, as std::list and std::vector<bool>.
template <class R>
concept Scattered = !memory_range<R> && requires(R& range) {
  range.begin();
  range.size();
};

/// The first mistake in the types of a call.
enum class Fault {
  none,
  other,         ///< not refused with a text: the compiler's own error is as good
  stream_order,  ///< the stream comes after the destination
  pointer,
  temporary,
  lost,  ///< the destination is a temporary
  read_only,
  types,
  scattered,
};

template <class To>
[[nodiscard]] consteval Fault fault_of_destination() {
  if constexpr (pointer_like<To>)
    return Fault::pointer;
  else if constexpr (!memory_range<To>)
    return Scattered<To> ? Fault::scattered : Fault::other;
  else if constexpr (owning_temporary<To>)
    return Fault::lost;
  else if constexpr (std::is_const_v<element_of<To>>)
    return Fault::read_only;
  else
    return std::is_trivially_copyable_v<element_of<To>> ? Fault::none : Fault::other;
}

template <class To, class From>
[[nodiscard]] consteval Fault fault_of_copy() {
  if constexpr (pointer_like<To> || pointer_like<From>)
    return Fault::pointer;
  else if constexpr (!memory_range<To> || !memory_range<From>)
    return Scattered<To> || Scattered<From> ? Fault::scattered : Fault::other;
  else if constexpr (owning_temporary<From>)
    return Fault::temporary;
  else if constexpr (fault_of_destination<To>() == Fault::none)
    return std::is_same_v<element_of<To>, std::remove_const_t<element_of<From>>> ? Fault::none
                                                                                 : Fault::types;
  else
    return fault_of_destination<To>();
}

template <class From, class To>
concept CopiedTo = fault_of_copy<To, From>() == Fault::none;
template <class To>
concept Filled = fault_of_destination<To>() == Fault::none;
template <class Value, class To>
concept NoElementOf = Filled<To> && !std::is_convertible_v<Value, element_of<To>>;

// Matched by the refused overloads.
template <class From, Fault fault, class To>
concept WronglyCopiedTo = fault_of_copy<To, From>() == fault;
/// A stream, or a handle, which the constructor of StreamRef refuses.
template <class S>
concept StreamLike = std::is_convertible_v<S, StreamRef> || RawHandle<std::remove_cvref_t<S>>;
/// The type of parameters that a call omits.
struct Absent {};

/// A temporary, or a moved object, that a copy takes ownership of. Moving it moves no elements, or
/// only the few that the object contains. Arrays are excluded.
template <class R>
concept TakenOver = owning_temporary<R> && Keepable<R>;
/// As fault_of_copy(), for a copy that takes ownership of such sources.
template <class To, class From>
[[nodiscard]] consteval Fault fault_of_copy_that_keeps() {
  if constexpr (memory_range<From> && TakenOver<From>)
    return fault_of_copy<To, From&>();
  else
    return fault_of_copy<To, From>();
}
template <class From, class To>
concept TakenOverBy = fault_of_copy_that_keeps<To, From>() == Fault::none &&
                      fault_of_copy<To, From>() == Fault::temporary;

/// The mistake of a call copy(to, from), copy(stream, to, from) or copy(stream, to, from, policy);
/// also with more arguments, such as a size.
template <class A, class B, class C>
[[nodiscard]] consteval Fault fault_of_copy_call() {
  if constexpr (!StreamLike<A>)
    return (StreamLike<B> && !std::is_same_v<C, Absent>) || StreamLike<C>
               ? Fault::stream_order
               : fault_of_copy_that_keeps<A, B>();
  else if constexpr (!std::is_same_v<C, Absent>)
    return fault_of_copy_that_keeps<B, C>();
  else
    return Fault::other;
}
template <class C, Fault fault, class A, class B>
concept WrongCopy = fault_of_copy_call<A, B, C>() == fault;
/// Matches fill(to, stream, value).
template <class B, class A>
concept StreamBehind = !StreamLike<A> && StreamLike<B>;
/// The mistake of a call fill(to, value) or fill(stream, to, value).
template <class A, class B>
[[nodiscard]] consteval Fault fault_of_fill_call() {
  if constexpr (StreamLike<A>)
    return fault_of_destination<B>();
  else
    return fault_of_destination<A>();
}
template <class B, Fault fault, class A>
concept WrongFill = fault_of_fill_call<A, B>() == fault;

}  // namespace runnel::inline RUNNEL_ABI::detail
