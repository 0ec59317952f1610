// SPDX-License-Identifier: Apache-2.0
/// The arguments that the functions of <runnel/kokkos.hpp> accept, and the mistakes that they
/// refuse at compile time.
#pragma once

#include <runnel/detail/memory_range.hpp>

#include <Kokkos_Core.hpp>

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
/// A temporary buffer of this library. `B` is as a forwarding reference deduces it.
template <class B>
concept TemporaryBuffer = runnel::detail::owning_temporary<B> && runnel::detail::memory_range<B> &&
                          requires { std::remove_cvref_t<B>::memory_kind; };
/// The first mistake in the types of a copy.
enum class Mistake { none, stream_order, pointer, temporary };

template <class R>
concept TemporaryElements = Elementwise<R> && !LastingElementwise<R>;
template <class To, class From>
[[nodiscard]] consteval Mistake mistake_of_copy() {
  constexpr bool to_view = KokkosView<std::remove_cvref_t<To>>,
                 from_view = KokkosView<std::remove_cvref_t<From>>;
  if constexpr (runnel::detail::pointer_like<To> || runnel::detail::pointer_like<From>)
    return Mistake::pointer;
  else
    return (to_view && TemporaryElements<From>) || (from_view && TemporaryElements<To>)
               ? Mistake::temporary
               : Mistake::none;
}
/// The mistake of a call copy_async(stream, to, from), also without the stream, or with the stream
/// in another position.
template <class A, class B, class C>
[[nodiscard]] consteval Mistake mistake_of_copy_call() {
  if constexpr (KokkosView<std::remove_cvref_t<A>> || Elementwise<A>)
    return Mistake::stream_order;
  else if constexpr (std::is_convertible_v<A, StreamRef>)
    return mistake_of_copy<B, C>();
  else
    return Mistake::none;
}
template <class C, Mistake mistake, class A, class B>
concept WrongCopy = mistake_of_copy_call<A, B, C>() == mistake;

}  // namespace runnel::inline RUNNEL_ABI::kokkos::detail
