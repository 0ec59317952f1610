// SPDX-License-Identifier: Apache-2.0
/// Streams: work in one is done in the order of submission, work in two has no order until an event or `wait_stream` gives it one.
#pragma once

#include <runnel/detail/host_function.hpp>
#include <runnel/detail/stream_slot.hpp>
#include <runnel/device.hpp>
#include <runnel/native.hpp>

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

class Event;
class TimedEvent;

/// How urgent a stream's work is: lower is more urgent. Any `int` is taken and clamped to the device's range, so the three levels
/// mean the device's greatest, 0 and least: {-5, 0, 0} on NVIDIA (0 is the least), {-1, 0, 1} on AMD and on the host backend.
struct Priority {
  int value = 0;  ///< before clamping

  constexpr Priority() noexcept = default;
  /// Any number.
  constexpr Priority(int number) noexcept : value{number} {}  // NOLINT: `.priority = -1` is how it is written

  static const Priority high;    ///< the most urgent that the device has
  static const Priority normal;  ///< 0
  static const Priority low;     ///< the least urgent that the device has
  friend constexpr bool operator==(Priority, Priority) noexcept = default;
};
inline constexpr Priority Priority::high{INT_MIN};
inline constexpr Priority Priority::normal{0};
inline constexpr Priority Priority::low{INT_MAX};

/// What a stream is to be like.
struct StreamOptions {
  /// Clamped to what the device has.
  Priority priority = Priority::normal;
  /// True: orders with the device's default stream, as plain `cudaStreamCreate` does. False: independent of it.
  bool blocking = false;
  /// Shown by profilers and timelines; copied, at most 31 bytes are kept. Null: none.
  const char* name = nullptr;
};

/// Whether a wrapper made from a native handle destroys it in the end.
enum class Ownership { borrow, take };

/// A view of a stream: copies freely, owns nothing. Using a view after its stream was destroyed throws `errc::invalid_handle`, also
/// when the runtime gave the same handle to a new stream. Unless it says otherwise, a member throws `errc::not_permitted` inside a
/// host function, never waits, and leaves the current device as it found it.
class StreamRef {
 public:
  StreamRef(std::nullptr_t) = delete;  ///< say `device.default_stream()`
  StreamRef(int) = delete;             ///< say `device.default_stream()` or `StreamRef::per_thread_default(device)`

  /// The calling thread's own default stream on that device. The view ends with the thread; used on another thread, it throws
  /// errc::invalid_argument.
  [[nodiscard]] static StreamRef per_thread_default(Device device);

  /// The vendor's handle, as `kernel<<<grid, block, 0, s.native()>>>` takes it. Makes no runtime call.
  [[nodiscard]] native::stream native() const { return live().handle; }
  /// The device that its work runs on.
  [[nodiscard]] Device device() const { return Device{live().device}; }
  /// A number that no other stream of this process ever has; 0 for a moved-from stream.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// False once the stream was destroyed or moved from.
  [[nodiscard]] bool valid() const noexcept { return detail::is_live(slot_, id_); }
  /// The priority that the runtime really gave.
  [[nodiscard]] int priority() const;
  /// Whether it orders with the device's default stream.
  [[nodiscard]] bool blocking() const { return live().blocking; }
  /// The name it was made with; "" if none.
  [[nodiscard]] const char* name() const { return live().name; }

  /// Whether what is submitted goes into a graph instead of being done (a capture begun by the runtime's own functions).
  [[nodiscard]] bool is_capturing() const;
  /// True when everything submitted so far has finished, the running task included. An error of earlier work is thrown.
  [[nodiscard]] bool query() const;
  /// Waits until everything submitted so far has finished; then throws the first exception that a host function left, once.
  void synchronize() const;
  /// The same with a bound: false if the time ran out first.
  template <class Rep, class Period>
  [[nodiscard]] bool synchronize_for(std::chrono::duration<Rep, Period> timeout) const {
    return synchronize_until(detail::deadline_after(timeout));
  }

  /// All work submitted here from now on runs after what `event` has recorded at this moment. A never-recorded event is complete.
  void wait_event(const Event& event) const;
  /// The same.
  void wait_event(const TimedEvent& event) const;
  /// All work submitted here from now on runs after everything submitted to `other` so far, on any device. Itself: nothing to do.
  void wait_stream(StreamRef other) const;
  /// A new event that marks everything submitted so far.
  [[nodiscard]] Event record_event() const;
  ///@{ `event` marks everything submitted so far, and no longer what it marked before.
  void record_event(Event& event) const;
  void record_event(TimedEvent& event) const;
  ///@}

  /// Runs `function()` once, on a thread of the runtime, after the work submitted so far and before what comes later, and destroys it
  /// once. It may wait for other threads but must not use streams. The first exception is thrown by the next `synchronize()`.
  /// @throws errc::invalid_argument for a null function pointer or an empty `std::function`.
  template <class F>
  requires std::is_invocable_v < std::decay_t<F>
  & > &&std::is_constructible_v<std::decay_t<F>, F> void launch_host_func(F&& function) const {
    if (detail::is_empty_callable(function)) detail::throw_invalid_argument("launch a host function", "the function is null");
    detail::launch(slot_, id_, detail::make_host_function(std::forward<F>(function)));
  }

  /// Makes this the current stream, and its device the current device, of the calling thread until changed.
  void use() const;

  /// The same stream. Two views of destroyed streams are equal if they viewed the same one.
  friend bool operator==(StreamRef a, StreamRef b) noexcept { return a.id_ == b.id_; }
  /// to_string()
  template <class Char, class Traits>
  friend std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, StreamRef stream) {
    return out << to_string(stream).c_str();
  }
  /// "Stream(id 7, device 0)", without asking the runtime.
  friend std::string to_string(StreamRef stream) { return detail::describe(stream.slot_, stream.id_); }

 protected:
  friend struct detail::Access;
  /// For the library: a stream that it knows.
  constexpr StreamRef(detail::StreamSlot* slot, std::uint64_t id) noexcept : slot_{slot}, id_{id} {}

  detail::StreamSlot* slot_;  ///< null for a moved-from stream
  std::uint64_t id_;          ///< what the slot must have for the view to be live

 private:
  [[nodiscard]] const detail::StreamSlot& live() const {
    if (!valid()) [[unlikely]]
      detail::throw_dead_stream(id_);
    return *slot_;
  }
  bool synchronize_until(std::chrono::steady_clock::time_point deadline) const;
};

namespace detail {
class EventBase;
/// How the library's own code gets behind the public types.
struct Access {
  [[nodiscard]] static StreamRef ref(StreamSlot* slot, std::uint64_t id) noexcept { return {slot, id}; }
  [[nodiscard]] static StreamSlot* slot(StreamRef stream) noexcept { return stream.slot_; }
  [[nodiscard]] static native::event recorded(const EventBase& event) noexcept;
};
}  // namespace detail

/// Owns a stream. Destroying it returns at once; what was submitted completes. A moved-from stream throws on every use.
class Stream : public StreamRef {
 public:
  /// On the current device. Independent of the default stream unless `options.blocking`.
  Stream() : Stream(StreamOptions{}) {}
  /// On the current device.
  explicit Stream(StreamOptions options) : Stream(Device::current(), options) {}
  /// On `device`, which does not become current.
  explicit Stream(Device device, StreamOptions options = {});
  ///@{ The other is moved-from afterwards: using it throws.
  Stream(Stream&& other) noexcept : StreamRef{other}, held_{std::exchange(other.held_, {})} { other.forget(); }
  Stream& operator=(Stream&& other) noexcept;
  ///@}
  ~Stream() {
    if (held_) detail::drop_stream(held_);
  }

  /// Wraps a handle; `take` destroys it in the end. All Stream objects of one handle are one stream: they are equal, have one `id()`, and
  /// an exception of a host function goes to the first `synchronize()` through any of them, also of one that is wrapped later. When the
  /// object that owns the handle is destroyed, the others throw errc::invalid_handle.
  /// @throws errc::invalid_argument for null, another device's handle, and `take` of a handle that a Stream owns already
  [[nodiscard]] static Stream from_native(native::stream handle, Device device, Ownership ownership);
  /// The same; the runtime is asked for the device. @throws errc::not_supported where it cannot tell.
  [[nodiscard]] static Stream from_native(native::stream handle, Ownership ownership);
  static Stream from_native(std::nullptr_t, Device, Ownership) = delete;
  /// Gives the handle to the caller, who destroys it; this object is then moved-from. Views of the stream end, unless another Stream
  /// object wraps the handle: such an object stays valid, and borrows the handle from now on.
  [[nodiscard]] native::stream release();

 private:
  explicit Stream(detail::SlotReference reference) noexcept;
  void forget() noexcept {
    slot_ = nullptr;
    id_ = 0;
  }

  detail::SlotReference held_;  // apart from the view, so that assigning to the base never changes what is destroyed
};

}  // namespace runnel::inline RUNNEL_ABI

template <>
struct std::hash<runnel::StreamRef> {
  std::size_t operator()(runnel::StreamRef stream) const noexcept { return std::hash<std::uint64_t>{}(stream.id()); }
};
template <>
struct std::hash<runnel::Stream> : std::hash<runnel::StreamRef> {};
