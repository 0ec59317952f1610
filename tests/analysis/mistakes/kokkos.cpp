// SPDX-License-Identifier: Apache-2.0
// Mistakes in the use of <runnel/kokkos.hpp>, as mistakes.cpp has those of the library.
#include <runnel/kokkos.hpp>
#include <runnel/runnel.hpp>

#include <array>
#include <span>
#include <utility>
#include <vector>

using namespace runnel;
using kokkos::copy_async;
using kokkos::launch;

using Space = kokkos::DefaultSpace;
using View = Kokkos::View<int*, Space::memory_space>;
using Exec = kokkos::ExecStream<Space>;
std::vector<int> make_vector();

namespace {

[[maybe_unused]] void copies(StreamRef s, const View& x, const View& y, std::vector<int>& v,
                             int* p) {
  // error: a temporary container ends before the copy: give it a name
  copy_async(s, x, make_vector());
  // error: a temporary container ends before the copy: give it a name
  copy_async(s, make_vector(), x);
  // error: a temporary container ends before the copy: give it a name
  copy_async(s, x, std::move(v));
  // error: a temporary container ends before the copy: give it a name
  copy_async(s, x, DeviceBuffer<int>{3});
  // error: a temporary container ends before the copy: give it a name
  copy_async(s, PinnedBuffer<int>{3}, x);
  // error: a pointer has no size: pass a std::span or an unmanaged view
  copy_async(s, x, p);
  // error: a pointer has no size: pass a std::span or an unmanaged view
  copy_async(s, p, x);
  // error: the stream comes first: the order is copy_async(stream, to, from)
  copy_async(x, y);
  // error: the stream comes first: the order is copy_async(stream, to, from)
  copy_async(x, s, y);
  // error: the stream comes first: the order is copy_async(stream, to, from)
  copy_async(x, y, s);
}

[[maybe_unused]] void scalars(StreamRef s, std::vector<int>& v) {
  const Kokkos::View<int, Space::memory_space> one("one");
  copy_async(s, one, 8);         // error: a temporary ends before the copy: give it a name
  copy_async(s, one, v[0] + 1);  // error: a temporary ends before the copy: give it a name
}

[[maybe_unused]] void temporaries() {
  // error: a temporary stream ends at once: give it a name
  static_cast<void>(kokkos::fenced_exec_space(Stream{}));
}

[[maybe_unused]] void instances(StreamRef s, const Space& exec, const Exec& stream, const View& x,
                                const View& y, std::vector<int>& v) {
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  copy_async(exec, x, y);
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  copy(exec, v, v);
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  fill(exec, v, 1);
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  launch(exec, [](const Space&) {});
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  static_cast<void>(kokkos::fenced_exec_space(exec));
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  s.wait_stream(exec);
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  const StreamGuard with{exec};
  // error: a Kokkos instance is no stream: write kokkos::as_stream(exec).stream()
  const DeviceBuffer<int> buffer{3, exec};
  // error: write kokkos::as_stream(exec).stream(), of an ExecStream .stream()
  copy_async(stream, x, y);
  // error: write kokkos::as_stream(exec).stream(), of an ExecStream .stream()
  copy(stream, v, v);
  // error: write kokkos::as_stream(exec).stream(), of an ExecStream .stream()
  launch(kokkos::as_stream(exec), [](const Space&) {});
  // error: write kokkos::as_stream(exec).stream(), of an ExecStream .stream()
  s.wait_stream(stream);
}

[[maybe_unused]] void views() {
  // error: a temporary buffer ends before its view: give it a name
  const auto a = kokkos::view(DeviceBuffer<int>{3});
  // error: a temporary buffer ends before its view: give it a name
  const auto b = kokkos::view(PinnedBuffer<int>{3});
  // error: a temporary buffer ends before its view: give it a name
  const auto c = kokkos::view(ManagedBuffer<int>{3});
  // error: a temporary buffer ends before its view: give it a name
  const auto d = kokkos::view<Space>(DeviceBuffer<int>{3});
}

// What is possible, and what is not: `requires` answers truly.
template <class Stream, class To, class From>
concept Copied = requires(Stream s, To&& to, From&& from) {
  copy_async(s, std::forward<To>(to), std::forward<From>(from));
};
template <class F>
concept Launched = requires(StreamRef s, F f) { launch<Space>(s, f); };
template <class B>
concept Viewed = requires(B&& buffer) { kokkos::view(std::forward<B>(buffer)); };
template <class T>
concept StreamLike = std::is_convertible_v<T, StreamRef> && std::is_constructible_v<StreamRef, T>;
using Vector = std::vector<int>;
static_assert(Copied<StreamRef, View, View> && Copied<StreamRef, const View&, Vector&> &&
              Copied<StreamRef, const Vector&, Vector&> == false);
static_assert(Copied<StreamRef, std::span<int>, View> &&
              Copied<StreamRef, View, std::span<const int>>);
static_assert(Copied<StreamRef, View, DeviceSpan<int>> &&
              Copied<StreamRef, View&, const DeviceBuffer<int>&>);
static_assert(!Copied<StreamRef, View, Vector> && !Copied<StreamRef, Vector, View> &&
              !Copied<StreamRef, View, int*>);
static_assert(!Copied<Space, View, View> && !Copied<Exec&, View, View> &&
              !Copied<View, StreamRef, View>);
static_assert(Launched<void (*)(const Space&)> && Launched<void (*)(Space)> &&
              !Launched<void (*)()> && !Launched<void (*)(int)>);
static_assert(Viewed<DeviceBuffer<int>&> && Viewed<const PinnedBuffer<int>&> &&
              Viewed<DeviceSpan<int>>);
static_assert(!Viewed<DeviceBuffer<int>> && !Viewed<const PinnedBuffer<int>> &&
              !Viewed<ManagedBuffer<int>>);
static_assert(StreamLike<Stream&> && StreamLike<kokkos::Instance<Space>&> && !StreamLike<Space> &&
              !StreamLike<Exec&>);

}  // namespace
