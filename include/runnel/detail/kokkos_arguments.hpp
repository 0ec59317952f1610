// SPDX-License-Identifier: Apache-2.0
/// The arguments that the functions of <runnel/kokkos.hpp> accept, and the mistakes that they
/// refuse at compile time.
#pragma once

#include <runnel/detail/memory_range.hpp>
#include <runnel/stream.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

namespace runnel::inline RUNNEL_ABI::kokkos::detail {

template <class V>
concept KokkosView = Kokkos::is_view_v<V>;
template <class V, std::size_t rank>
concept KokkosViewOf = KokkosView<V> && V::rank() == rank;
template <class R>
concept Elementwise =
    !KokkosView<std::remove_cvref_t<R>> && runnel::detail::memory_range<std::remove_cvref_t<R>>;
/// R is as a forwarding reference deduces it.
template <class R>
concept LastingElementwise = Elementwise<R> && !runnel::detail::owning_temporary<R>;
template <class T>
concept DualView = runnel::detail::KokkosArray<T> && !KokkosView<std::remove_cvref_t<T>> &&
                   requires(std::remove_cvref_t<T>& pair) { pair.view_device(); };
/// A temporary buffer of this library. `B` is as a forwarding reference deduces it.
template <class B>
concept TemporaryBuffer = runnel::detail::owning_temporary<B> && runnel::detail::memory_range<B> &&
                          requires { std::remove_cvref_t<B>::memory_kind; };
template <class Other, class Waiting>
concept OneIsStream =
    std::is_convertible_v<Other, StreamRef> || std::is_convertible_v<Waiting, StreamRef>;

/// The first mistake in the types of a copy.
enum class Mistake { none, stream_order, dual_view, pointer, no_view, temporary, rank };

/// The mistake of a copy between a view and a range that is no view.
template <class View, class Other>
[[nodiscard]] consteval Mistake mistake_of_pair() {
  if constexpr (!Elementwise<Other>)
    return Mistake::none;
  else if constexpr (!LastingElementwise<Other>)
    return Mistake::temporary;
  else
    return KokkosViewOf<std::remove_cvref_t<View>, 1> ? Mistake::none : Mistake::rank;
}
template <class To, class From>
[[nodiscard]] consteval Mistake mistake_of_copy() {
  constexpr bool to_view = KokkosView<std::remove_cvref_t<To>>,
                 from_view = KokkosView<std::remove_cvref_t<From>>;
  if constexpr (DualView<To> || DualView<From>)
    return Mistake::dual_view;
  else if constexpr (runnel::detail::pointer_like<To> || runnel::detail::pointer_like<From>)
    return Mistake::pointer;
  else if constexpr (to_view && from_view)
    return Mistake::none;
  else if constexpr (to_view)
    return mistake_of_pair<To, From>();
  else if constexpr (from_view)
    return mistake_of_pair<From, To>();
  else
    return Elementwise<To> && Elementwise<From> ? Mistake::no_view : Mistake::none;
}
/// The mistake of a call copy_async(stream, to, from), also without the stream, or with the stream
/// in another position.
template <class A, class B, class C>
[[nodiscard]] consteval Mistake mistake_of_copy_call() {
  if constexpr (runnel::detail::KokkosArray<A> || Elementwise<A>)
    return Mistake::stream_order;
  else if constexpr (std::is_convertible_v<A, StreamRef>)
    return mistake_of_copy<B, C>();
  else
    return Mistake::none;
}
template <class C, Mistake mistake, class A, class B>
concept WrongCopy = mistake_of_copy_call<A, B, C>() == mistake;

}  // namespace runnel::inline RUNNEL_ABI::kokkos::detail
