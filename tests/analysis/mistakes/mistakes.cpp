// SPDX-License-Identifier: Apache-2.0
// Mistakes in the use of the library. mistakes.py compiles this file: each line with a comment
// `error: text` or `warning: text` must give exactly one such line, with that text, and no other
// line may give one.
#include <runnel/runnel.hpp>
#include <runnel/trace.hpp>

#include <array>
#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace runnel;

struct NotBytes {
  NotBytes(const NotBytes&);
};
std::vector<int> make_vector();
std::array<int, 3> make_array();

namespace {

[[maybe_unused]] void waits(Stream& s, StreamRef other, Event& event, TimedEvent& timed) {
  s.launch_host_func([](int) {});      // error: a host function has no parameters
  other.launch_host_func([](int) {});  // error: a host function has no parameters
  // error: include <runnel/completion.hpp>, and pass a function of a const Outcome&
  s.on_complete([] {});
  // error: include <runnel/completion.hpp>, and pass a function of a const Outcome&
  event.on_complete([] {});
  s.wait_stream(event);  // error: write wait_event(event)
  s.wait_stream(timed);  // error: write wait_event(event)
  s.wait_event(other);   // error: write wait_stream(stream)
  s.wait_event(s);       // error: write wait_stream(stream)
  event - event;         // error: an Event has no time: write TimedEvent
  event - timed;         // error: an Event has no time: write TimedEvent
  timed - event;         // error: an Event has no time: write TimedEvent
}

/// A view as other libraries have them: it says nothing of itself.
struct OwnView {
  int* data() const;
  std::size_t size() const;
};
[[maybe_unused]] void copies(StreamRef s, DeviceBuffer<int>& d, std::vector<int>& v, int* p,
                             const void* q, std::string& text) {
  copy(d, v, s);  // error: the stream comes first
  std::vector<bool> bits(5);
  std::list<int> list(5);
  copy(s, d, bits);        // error: the elements are not in one block
  copy(d, list);           // error: the elements are not in one block
  fill(s, d, "1");         // error: the value does not convert to the type of the elements
  d[0] = 1;                // error: the host cannot read device memory: write get(stream, x, i)
  DeviceSpan<int>{}[0];    // error: the host cannot read device memory: write get(stream, x, i)
  copy(s, p, p);           // error: write copy_bytes(stream, to, from, bytes)
  copy(s, p, p, 12);       // error: write copy_bytes(stream, to, from, bytes)
  copy(s, d, p);           // error: write copy_bytes(stream, to, from, bytes)
  copy(s, p, v);           // error: write copy_bytes(stream, to, from, bytes)
  copy(s, p, q, 12);       // error: write copy_bytes(stream, to, from, bytes)
  copy(s, d, nullptr);     // error: write copy_bytes(stream, to, from, bytes)
  copy(p, p);              // error: write copy_bytes(stream, to, from, bytes)
  copy(p, v, 12);          // error: write copy_bytes(stream, to, from, bytes)
  copy_bytes(s, 8, p, p);  // error: the order is copy_bytes(stream, to, from, bytes)
  // error: a temporary container ends before the copy: give it a name
  copy(s, d, std::move(std::as_const(v)));
  // error: a temporary container ends before the copy: give it a name
  copy(s, d, make_array());
  // error: a temporary container ends before the copy: give it a name
  copy(d, make_array());
  copy(s, make_vector(), d);  // error: the destination is a temporary, which ends
  copy(make_vector(), d);     // error: the destination is a temporary, which ends
  copy(s, d, {1, 2});         // error: a braced list ends before the copy
  std::vector<double> doubles;
  copy(s, d, doubles);                    // error: the elements have two types
  copy(d, doubles);                       // error: the elements have two types
  copy(s, std::as_const(v), d);           // error: the destination is read-only
  copy(s, std::string_view{text}, text);  // error: the destination is read-only
}

[[maybe_unused]] void kept(StreamRef s, std::vector<int>& v, const std::unique_ptr<int> owner,
                           int* p) {
  keep(s, v);                 // error: keep takes an owner over: write std::move(owner)
  keep(s, std::move(owner));  // error: keep takes an owner over: write std::move(owner)
  keep(s, p);                 // error: keep takes an owner over: write std::move(owner)
  keep(s, std::span{v});      // error: keep takes an owner over: write std::move(owner)
  keep(s, make_array());      // error: keep takes an owner over: write std::move(owner)
}

[[maybe_unused]] void batches(DeviceBuffer<int>& d, int* p) {
  // error: write CopyOperation{to, from, bytes}
  static_cast<void>(copy_operation(p, p));
  // error: a temporary container ends before the copy: give it a name
  static_cast<void>(copy_operation(d, make_vector()));
}

[[maybe_unused]] void fills(StreamRef s, int* p) {
  fill(s, p, 1);      // error: write fill_bytes(stream, to, value, bytes)
  fill(s, p, 1, 12);  // error: write fill_bytes(stream, to, value, bytes)
  fill(p, 1);         // error: write fill_bytes(stream, to, value, bytes)
  // error: a temporary container ends before the fill: give it a name
  fill(s, make_vector(), 1);
  // error: a temporary container ends before the fill: give it a name
  fill(make_vector(), 1);
}

[[maybe_unused]] void temporaries(StreamRef s, StreamPool& pool, DeviceBuffer<int>& buffer,
                                  StreamGuard& guard, Stream& stream) {
  // error: a temporary stream ends at once: give it a name
  DeviceBuffer<int> a(10, Stream{});
  // error: a temporary stream ends at once: give it a name
  DeviceBuffer<int> b{10, pool.acquire()};
  // error: a temporary stream ends at once: give it a name
  DeviceBuffer<int> c{10, DeviceResource{Device{0}}, Stream{}};
  // error: a temporary stream ends at once: give it a name
  DeviceBuffer<int> d{buffer, std::move(stream)};
  // error: a temporary stream ends at once: give it a name
  buffer.set_stream(Stream{});
  // error: a temporary stream ends at once: give it a name
  const StreamGuard with{Stream{}};
  // error: a temporary stream ends at once: give it a name
  guard.reset(pool.acquire());
  // error: a temporary stream ends at once: give it a name
  guard.reset(Stream{});
  // error: a temporary stream ends at once: give it a name
  set_current_stream(Stream{});
  // error: a temporary stream ends at once: give it a name
  const TraceRange range{Stream{}, "name"};
  // error: a temporary stream ends at once: give it a name
  begin_capture(Stream{});
  copy(Stream{}, buffer, buffer);
  s.wait_stream(pool.acquire());
}

[[maybe_unused]] void handles(native::stream q, DeviceBuffer<int>& d, std::vector<int>& v,
                              Stream& stream, void (*f)(StreamRef)) {
  copy(q, d, v);                         // error: write StreamRef::from_native(handle, device)
  copy_bytes(q, v.data(), d.data(), 4);  // error: write StreamRef::from_native(handle, device)
  fill(q, d, 1);                         // error: write StreamRef::from_native(handle, device)
  f(q);                                  // error: write StreamRef::from_native(handle, device)
  stream.wait_stream(q);                 // error: write StreamRef::from_native(handle, device)
  const StreamGuard with{q};             // error: write StreamRef::from_native(handle, device)
  const StreamRef view = q;              // error: write StreamRef::from_native(handle, device)
  const DeviceBuffer<int> buffer{3, q};  // error: write StreamRef::from_native(handle, device)
}

[[maybe_unused]] const std::vector<int> make_const_vector() { return {1, 2, 3}; }
[[maybe_unused]] void registrations(std::vector<int>& v, const void* p, const int* q) {
  const HostRegistration a{std::as_const(v)}, b{p, 12}, c(q, 12), d{std::span<const int>{v}};
  // error: a temporary container ends at once: give it a name
  const HostRegistration e{make_vector()};
  // error: a temporary container ends at once: give it a name
  const HostRegistration i{make_const_vector()};
  const HostRegistration f{v}, g{v.data(), 12}, h{static_cast<void*>(v.data()), 12};
}

[[maybe_unused]] void orders(StreamRef s, DeviceBuffer<int>& d, std::vector<int>& v) {
  // error: the stream comes first: the order is copy(stream, to, from)
  copy(d, s, v);
  // error: the stream comes first: the order is fill(stream, to, value)
  fill(v, s, 1);
}

[[maybe_unused]] void guards(StreamRef s, Device device, const StreamContext& context) {
  StreamGuard{s};                 // warning: nodiscard
  DeviceGuard{device};            // warning: nodiscard
  ProfilerRange{"name"};          // warning: nodiscard
  StreamContext::Guard{context};  // warning: nodiscard
}

#ifndef __CUDACC__  // for nvcc a refused call is valid, until the host's compiler sees it
// What is possible, and what is not: `requires` answers truly.
template <class To, class From>
concept Copied = requires(StreamRef s, To&& to, From&& from) {
  copy(s, std::forward<To>(to), std::forward<From>(from));
};
template <class To, class From>
concept CopiedOnCurrent =
    requires(To&& to, From&& from) { copy(std::forward<To>(to), std::forward<From>(from)); };
template <class To, class From>
concept Batched = requires(To&& to, From&& from) {
  copy_operation(std::forward<To>(to), std::forward<From>(from));
};
template <class To, class From>
inline constexpr bool in_all_forms =
    Copied<To, From> && CopiedOnCurrent<To, From> && Batched<To, From>;
template <class To, class From>
inline constexpr bool in_no_form =
    !Copied<To, From> && !CopiedOnCurrent<To, From> && !Batched<To, From>;
template <class To>
concept IsFilled = requires(StreamRef s, To&& to) {
  fill(s, std::forward<To>(to), 1);
  fill(std::forward<To>(to), 1);
};
template <class F>
concept Launched = requires(StreamRef s, F&& f) { s.launch_host_func(std::forward<F>(f)); };

template <class F>
concept Completed = requires(StreamRef s, const Event& event, F&& f) {
  s.on_complete(std::forward<F>(f));
  event.on_complete(std::forward<F>(f));
};

using Vector = std::vector<int>;
using Buffer = DeviceBuffer<int>;
static_assert(in_all_forms<Vector&, Buffer&> && in_all_forms<Buffer&, const Vector&> &&
              in_all_forms<Vector&, const Buffer&>);
static_assert(in_all_forms<int (&)[3], std::array<int, 3>&> &&
              in_all_forms<PinnedBuffer<int>&, const ManagedBuffer<int>&>);
static_assert(in_all_forms<Buffer&, std::initializer_list<int>&> &&
              in_all_forms<Buffer&, const std::initializer_list<int>&>);
static_assert(in_all_forms<std::span<int>, std::span<const int>> &&
              in_all_forms<DeviceSpan<int>, DeviceSpan<const int>>);
static_assert(in_all_forms<OwnView, OwnView> && in_all_forms<OwnView&, const OwnView> &&
              in_all_forms<std::string&, std::string_view>);
static_assert(in_no_form<int*, int*> && in_no_form<Vector&, int*> && in_no_form<int*, Vector&> &&
              in_no_form<Vector&, std::nullptr_t>);
static_assert(in_no_form<Buffer&, const Vector> && in_no_form<Vector, Buffer&> &&
              in_no_form<Vector, Vector>);
static_assert(in_no_form<Vector&, std::array<int, 3>>);
static_assert(in_no_form<Vector&, std::array<const int, 3>> && in_no_form<Vector&, int[3]>);
// A copy keeps an owner that is moved; a list of copies does not.
template <class To, class From>
inline constexpr bool is_kept = Copied<To, From> && CopiedOnCurrent<To, From> && !Batched<To, From>;
static_assert(is_kept<Buffer&, Vector> && is_kept<Vector&, Buffer> &&
              is_kept<Buffer&, PinnedBuffer<int>>);
static_assert(is_kept<std::string&, std::string> && is_kept<std::span<int>, Vector>);
static_assert(in_no_form<const Vector&, Buffer&> && in_no_form<std::span<const int>, Buffer&> &&
              in_no_form<Vector&, std::string&>);
static_assert(in_no_form<Vector&, std::initializer_list<int>> &&
              in_no_form<std::vector<NotBytes>&, std::vector<NotBytes>&>);
static_assert(in_no_form<int, Vector&> && in_no_form<Vector&, int>);
static_assert(IsFilled<Vector&> && IsFilled<std::span<int>> && IsFilled<Buffer&> &&
              IsFilled<DeviceSpan<int>>);
static_assert(!IsFilled<Vector> && !IsFilled<const Vector&> && !IsFilled<int*> &&
              !IsFilled<Buffer> && !IsFilled<int>);
static_assert(Launched<void (*)()> && Launched<void (&)()> && Launched<std::function<void()>&>);
static_assert(!Launched<void (*)(int)> && !Launched<std::function<void(int)>> && !Launched<int>);
static_assert(Completed<void (*)(const Outcome&)> && Completed<void (*)(Outcome)> &&
              !Completed<void (*)()> && !Completed<int>);
static_assert(std::is_constructible_v<Buffer, int, Stream&> &&
              std::is_constructible_v<Buffer, int, StreamRef>);
static_assert(std::is_constructible_v<Buffer, int, const StreamLease&> &&
              std::is_constructible_v<Buffer, Buffer&, Stream&>);
static_assert(!std::is_constructible_v<Buffer, int, Stream> &&
              !std::is_constructible_v<Buffer, int, const Stream>);
static_assert(!std::is_constructible_v<Buffer, int, StreamLease> &&
              !std::is_constructible_v<StreamGuard, Stream>);
static_assert(std::is_constructible_v<StreamGuard, Stream&> &&
              std::is_constructible_v<StreamGuard, StreamRef>);
static_assert(std::is_constructible_v<HostRegistration, Vector&> &&
              std::is_constructible_v<HostRegistration, void*, int>);
static_assert(std::is_constructible_v<HostRegistration, const Vector&> &&
              std::is_constructible_v<HostRegistration, const void*, int>);
static_assert(!std::is_constructible_v<HostRegistration, Vector> &&
              !std::is_constructible_v<HostRegistration, const Vector>);
static_assert(!std::is_constructible_v<Stream, int> &&
              !std::is_constructible_v<Stream, Device, int>);
static_assert(!std::is_constructible_v<Stream, Device, Priority> &&
              !std::is_constructible_v<StreamRef, int>);
static_assert(!std::is_convertible_v<int, Stream> && !std::is_convertible_v<int, StreamRef>);
static_assert(std::is_constructible_v<Stream, Device> &&
              std::is_constructible_v<Stream, Device, StreamOptions>);

#endif

[[maybe_unused]] void braced(Device device) {
  Stream a{device, {}};
  Stream b{device, {.priority = -1}};
  Stream c{{.priority = Priority::high}};
  Stream d{StreamOptions{}};
}

}  // namespace
