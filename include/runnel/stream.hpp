// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// Streams. Work in one stream runs in the order of submission. Work in two streams has no order
/// until an event or `wait_stream` gives it one.
///
/// docs/getting-started.md has a first program, docs/priorities.md explains urgent streams,
/// docs/thread-safety.md says what two threads may do with one stream.
#pragma once

#include <runnel/detail/checking.hpp>
#include <runnel/detail/host_function.hpp>
#include <runnel/detail/partition.hpp>
#include <runnel/detail/refused.hpp>

namespace runnel::inline RUNNEL_ABI {

class Event;
class TimedEvent;

namespace detail {
class EventBase;
template <class T>
concept KokkosInstance =
    std::is_same_v<typename T::execution_space, T> || requires { &T::unfenced_stream; };
}  // namespace detail

/// Options of a new stream.
struct StreamOptions {
  /// The priority, which is clamped to the device's range (default: Priority::normal).
  Priority priority = Priority::normal;
  /// True: the stream is ordered with the device's default stream, like a stream of plain
  /// `cudaStreamCreate`. False (default): it is independent of the default stream.
  bool blocking = false;
  /// The name that profilers and timelines show (null = none, default). It is copied, and truncated
  /// to 31 bytes.
  const char* name = nullptr;
  /// The part of the device on which the stream's kernels run (default: the whole device). If it is
  /// set, `blocking` is ignored: the stream is independent of the default stream on NVIDIA; on AMD
  /// it is ordered with the default stream and has normal priority. is_blocking() and priority()
  /// return what is in effect. Copies and host functions are not affected.
  Partition partition = {};
};

/// Options of a host function.
struct HostFunctionOptions {
  /// False: the function writes no memory that a later copy reads on any stream. While a function
  /// that may write is unfinished, copies from pageable memory read their source in stream order,
  /// which is slower (default: true).
  bool writes_host_memory = true;
};

/// Whether the object that wraps a native handle also destroys it.
enum class Ownership {
  borrow,  ///< the handle's owner destroys it
  take,    ///< the wrapping object destroys it
};

namespace detail {
template <class H>
concept RawHandle = std::is_same_v<H, native::stream>;
}

/// A view of a stream: it is cheap to copy and owns nothing. Using a view after its stream was
/// destroyed throws `errc::invalid_handle`, even if the runtime has reused the handle for a new
/// stream. Unless documented otherwise, a member throws `errc::not_permitted` inside a host
/// function, never waits, and does not change the current device. In a capture, queries and waits
/// throw errc::capture.
class StreamRef {
 public:
  /// @cond
  template <detail::KokkosInstance E>
  StreamRef RUNNEL_REFUSED(
      "a Kokkos instance is no stream: write kokkos::as_stream(exec).stream(), of an ExecStream "
      ".stream()",
      const E&);
  template <detail::RawHandle H>
  StreamRef RUNNEL_REFUSED("write StreamRef::from_native(handle, device)", H);
  /// @endcond

  /// The calling thread's own default stream on that device. The view is valid until the thread
  /// ends; on another thread every operation on it throws errc::invalid_argument.
  [[nodiscard]] static StreamRef per_thread_default(Device device);

  /// @{ A view of a stream that other code owns, by its native handle. The handles 0, 1 and 2 have
  /// the vendors' meaning: 0 and 1 are the device's default stream, 2 is the calling thread's own
  /// default stream. All views and Stream objects of one handle refer to the same stream. A view of
  /// a Stream's handle becomes invalid when that Stream is destroyed. Other views do not become
  /// invalid: do not use them once the other code has destroyed its stream (ForeignStream keeps the
  /// owner alive). Without the argument `device` the runtime is queried for it; 0, 1 and 2 then
  /// belong to the current device.
  /// @throws errc::invalid_argument for another device's handle, errc::not_supported if the runtime
  /// cannot report the device, and, on the host backend, errc::invalid_handle for a handle of no
  /// live stream
  [[nodiscard]] static StreamRef from_native(native::stream handle, Device device);
  [[nodiscard]] static StreamRef from_native(native::stream handle);
  ///@}

  /// The vendor's handle, for `kernel<<<grid, block, 0, s.native()>>>`. Makes no runtime call.
  [[nodiscard]] native::stream native() const { return live().handle; }
  /// The device that runs the stream's work.
  [[nodiscard]] Device device() const { return Device{live().device}; }
  /// A number that identifies the stream and is never reused in this process; 0 for a moved-from
  /// stream.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// False once the stream was destroyed or moved from.
  [[nodiscard]] bool is_valid() const noexcept { return detail::is_live(slot_, id_); }
  /// The effective priority, after clamping.
  [[nodiscard]] Priority priority() const;
  /// Whether the stream is ordered with the device's default stream. @throws errc::capture if it is
  /// being captured, and was not known before
  [[nodiscard]] bool is_blocking() const;
  /// The number of multiprocessors on which the stream's kernels may run: those of
  /// StreamOptions::partition, or all of the device.
  [[nodiscard]] int multiprocessors() const;
  /// The name from StreamOptions; "" if none was given.
  [[nodiscard]] const char* name() const { return live().name; }

  /// Whether the runtime is capturing the stream into a graph: submitted work is then recorded
  /// instead of run.
  [[nodiscard]] bool is_capturing() const;
  /// Whether everything submitted so far has completed, including the work that is running. Throws
  /// an error of earlier work.
  [[nodiscard]] bool query() const;
  /// Waits until everything submitted so far has completed. If a host function threw, it then
  /// throws the first such exception; later calls do not throw it again.
  void synchronize() const;
  /// The same, but throws nothing: it clears or sets a `std::error_code` (include
  /// <runnel/error.hpp>). For an exception of earlier work the code is that of Outcome::code():
  /// errc::function_failed if a host function threw an exception of its own. The next synchronize()
  /// without an error code throws the exception.
  template <class ErrorCode>
  auto synchronize(ErrorCode& code) const noexcept -> decltype(set_by_synchronize(code, *this)) {
    return set_by_synchronize(code, *this);
  }
  /// As synchronize(), but waits at most `timeout`; returns false if the time ran out first.
  template <class Rep, class Period>
  [[nodiscard]] bool synchronize_for(std::chrono::duration<Rep, Period> timeout) const {
    return synchronize_to(detail::deadline_after(timeout));
  }
  /// The same until a point in time of any clock.
  template <class Clock, class Duration>
  [[nodiscard]] bool synchronize_until(std::chrono::time_point<Clock, Duration> time) const {
    return synchronize_to(detail::deadline_at(time));
  }

  /// Calls `function(const Outcome&)` once, on a thread of the library, when everything submitted
  /// so far is complete or has failed. Functions of one stream are called in the order of the
  /// on_complete() calls. Later work of the stream does not wait for the function. The outcome is
  /// what `synchronize()` would throw: an error of the runtime, also if the device was lost and
  /// host functions were skipped, or the first exception of a host function, which `synchronize()`
  /// still throws. The function may use streams; its thread has the current device and streams of a
  /// new thread. One thread calls all such functions, so a function must not wait for another one.
  /// The stream's next `synchronize()` throws the first exception that leaves the function.
  /// Functions are not called in a forked child, nor once the process exits. If on_complete()
  /// throws, the function is never called. Include <runnel/completion.hpp> to use it.
  /// @throws errc::capture for a stream that is being captured; errc::invalid_argument for a null
  /// function
  template <class F>
  auto on_complete(F&& function) const
      -> decltype(call_on_complete(*this, std::forward<F>(function))) {
    return call_on_complete(*this, std::forward<F>(function));
  }
  /// @cond
  static void on_complete RUNNEL_REFUSED(
      "include <runnel/completion.hpp>, and pass a function of a const Outcome&", detail::Anything);
  /// @endcond
  /// A Future of everything submitted so far, with the outcome that `on_complete()` would pass.
  /// Include <runnel/completion.hpp> to use it.
  template <class View = StreamRef>
  [[nodiscard]] auto future() const -> decltype(future_of(View{*this})) {
    return future_of(View{*this});
  }

  /// Work submitted to this stream from now on runs after the work that `event` has recorded at the
  /// time of the call. An event that was never recorded counts as complete.
  void wait_event(const Event& event) const;
  /// The same for a timed event.
  void wait_event(const TimedEvent& event) const;
  /// Work submitted to this stream from now on runs after everything submitted to `other` so far.
  /// The streams may be of different devices. Does nothing if `other` is this stream.
  void wait_stream(StreamRef other) const;
  /// @cond
  static void wait_stream RUNNEL_REFUSED("write wait_event(event)", const detail::EventBase&);
  static void wait_event RUNNEL_REFUSED("write wait_stream(stream)", StreamRef);
  /// @endcond
  /// As wait_stream() for each stream that uses the memory of a DeviceBuffer: its own stream, and
  /// those that copies, fills and record_stream() have recorded with it.
  template <class Buffer>
  void wait_for_uses(const Buffer& buffer) const {
    order_behind_uses(this, buffer);
  }
  /// A new event that records everything submitted so far.
  [[nodiscard]] Event record_event() const;
  ///@{ Records everything submitted so far in `event`, and replaces its previous record.
  void record_event(Event& event) const;
  void record_event(TimedEvent& event) const;
  ///@}

  /// Enqueues `function()`: it is called once, on a thread of the runtime, after the work submitted
  /// so far and before later work, and then destroyed. The function may wait for other threads but
  /// must not use streams. The next `synchronize()` throws the first exception that leaves a host
  /// function. With `{.writes_host_memory = false}` it does not slow down copies. @throws
  /// errc::invalid_argument for a null function pointer or an empty `std::function`
  template <detail::HostCallable F>
  void launch_host_func(F&& function, HostFunctionOptions options = {}) const {
    if (detail::is_empty_callable(function))
      detail::throw_invalid_argument("launch a host function", "the function is null");
    detail::launch(slot_, id_, detail::make_host_function(std::forward<F>(function)),
                   options.writes_host_memory);
  }
  /// @cond
  static void launch_host_func RUNNEL_REFUSED(
      "a host function has no parameters, and is moved or copied: write [x] { use(x); }",
      detail::Anything, HostFunctionOptions = {});
  /// @endcond

  /// Work submitted to this stream from now on waits until the number at `location` is at least
  /// `value`, compared cyclically: `static_cast<std::int32_t>(*location - value) >= 0`. The
  /// location is in pinned or registered memory, and aligned to 4 bytes. A stream or the host
  /// writes the number (docs/sharing.md). Requires: the work that leads to the write was enqueued
  /// on this device before this call, because streams share hardware queues. @throws
  /// errc::invalid_argument for other memory, errc::not_supported without
  /// Device::has_stream_memory_operations(), errc::capture in a capture
  void wait_value(const std::uint32_t* location, std::uint32_t value) const;
  /// Writes `value` to the location after the work submitted so far. An observer that reads the new
  /// number also sees the writes of that work. The location and the errors are as for wait_value().
  void write_value(std::uint32_t* location, std::uint32_t value) const;

  /// @{ Declares to the race checker (race_checker.hpp) that a kernel or a host function that the
  /// caller submits to this stream at this point reads, or writes, memory: `bytes` bytes, or all
  /// elements of a vector, a span or a buffer. Does nothing while the checker is off.
  void declare_reads(const void* pointer, std::size_t bytes) const {
    declare(detail::MemoryAccess::read, pointer, bytes);
  }
  void declare_writes(const void* pointer, std::size_t bytes) const {
    declare(detail::MemoryAccess::write, pointer, bytes);
  }
  template <class R>
  void declare_reads(const R& range) const {
    declare(detail::MemoryAccess::read, range.data(), detail::size_in_bytes(range),
            detail::kind_of_range<R>());
  }
  template <class R>
  void declare_writes(const R& range) const {
    declare(detail::MemoryAccess::write, range.data(), detail::size_in_bytes(range),
            detail::kind_of_range<R>());
  }
  ///@}

  /// Makes this stream and its device current on the calling thread until changed. @throws
  /// errc::not_permitted in a host function and in a hook
  void use() const;

  /// Whether both refer to the same stream. Two views of one destroyed stream are still equal.
  friend bool operator==(StreamRef a, StreamRef b) noexcept { return a.id_ == b.id_; }
  /// Writes to_string(stream).
  template <class Char, class Traits>
  friend auto& operator<<(std::basic_ostream<Char, Traits>& out, StreamRef stream) {
    return out << to_string(stream).c_str();
  }
  /// Text such as "Stream(id 7, device 0)". Makes no runtime call.
  friend std::string to_string(StreamRef stream) {
    return detail::describe(stream.slot_, stream.id_);
  }

 protected:
  friend struct detail::Access;
  /// For the library's own use.
  constexpr StreamRef(detail::StreamSlot* slot, std::uint64_t id) noexcept : slot_{slot}, id_{id} {}

  detail::StreamSlot* slot_;  ///< null for a moved-from stream
  std::uint64_t id_;          ///< the view is live while the slot has this id

 private:
  [[nodiscard]] const detail::StreamSlot& live() const {
    if (!is_valid()) [[unlikely]]
      detail::throw_dead_stream(id_);
    return *slot_;
  }
  bool synchronize_to(std::chrono::steady_clock::time_point deadline) const;
  void declare(detail::MemoryAccess access, const void* pointer, std::size_t bytes,
               const MemoryKind* kind = nullptr) const {
    if (detail::is_checking()) [[unlikely]]
      detail::declare_access(slot_, id_, access, pointer, bytes, kind);
  }
};

/// Owns a stream. The destructor does not wait; submitted work still completes. Every use of a
/// moved-from stream throws errc::invalid_handle.
class Stream : public StreamRef {
 public:
  /// Creates a stream on the current device.
  Stream() : Stream(StreamOptions{}) {}
  /// Creates a stream on the current device.
  explicit Stream(StreamOptions options) : Stream(Device::current(), options) {}
  /// Creates a stream on `device`, and does not change the current device. @throws errc::no_device,
  /// errc::invalid_device; errc::invalid_argument for a partition of another device
  explicit Stream(Device device, StreamOptions options = {});
  ///@{ The other object is moved-from afterwards.
  Stream(Stream&& other) noexcept : StreamRef{other}, held_{other.held_.take()} { other.forget(); }
  Stream& operator=(Stream&& other) noexcept;
  ///@}
  ~Stream() {
    if (held_) detail::drop_stream(held_);
  }

  /// Wraps a native handle. All Stream objects of one handle refer to the same stream: they are
  /// equal, have the same `id()`, and share the exceptions of host functions, which are thrown by
  /// the first object that is synchronized. If an exception was not thrown before the last object
  /// is destroyed, the hook (hooks.hpp) receives it as HookKind::lost_exception. When the object
  /// that owns the handle is destroyed, the others throw errc::invalid_handle.
  /// @throws errc::invalid_argument for the handles 0, 1 and 2 of default streams (use
  /// StreamRef::from_native() for them), for another device's handle, and for Ownership::take of a
  /// handle that another Stream owns already
  [[nodiscard]] static Stream from_native(native::stream handle, Device device,
                                          Ownership ownership);
  /// The same; queries the runtime for the device. @throws errc::not_supported if the runtime
  /// cannot report it
  [[nodiscard]] static Stream from_native(native::stream handle, Ownership ownership);
  static Stream from_native(std::nullptr_t, Device, Ownership) = delete;
  /// Transfers ownership of the handle to the caller, who must destroy it. This object is
  /// moved-from afterwards, and views of the stream become invalid, unless another Stream object
  /// wraps the handle: that object stays valid and borrows the handle from now on.
  [[nodiscard]] native::stream release();

 private:
  explicit Stream(detail::SlotReference reference) noexcept;
  void forget() noexcept {
    slot_ = nullptr;
    id_ = 0;
  }

  // Separate from the view, so that assigning to the base never changes what is destroyed.
  detail::SlotReference held_;
};

/// Waits at the end of a scope for all work of a stream, also when an exception or an early return
/// ends the scope. Declare it after the host memory that copies of the stream read or write, which
/// then outlives them. The destructor throws nothing: the stream's next wait throws an exception of
/// its work. If the stream was destroyed in the scope, the destructor waits for its last work or,
/// where that is not known, for the device.
class [[nodiscard]] SynchronizeAtExit {
 public:
  /// @throws errc::capture for a stream that is being captured, whose work runs later
  [[nodiscard]] explicit SynchronizeAtExit(StreamRef stream);
  SynchronizeAtExit(const SynchronizeAtExit&) = delete;
  SynchronizeAtExit& operator=(const SynchronizeAtExit&) = delete;
  /// @cond
  explicit SynchronizeAtExit RUNNEL_REFUSED_TEMPORARY_STREAM(Stream&&);
  /// @endcond
  ~SynchronizeAtExit();

 private:
  StreamRef stream_;
};

}  // namespace runnel::inline RUNNEL_ABI

template <>
struct std::hash<runnel::StreamRef> {
  std::size_t operator()(runnel::StreamRef stream) const noexcept {
    return std::hash<std::uint64_t>{}(stream.id());
  }
};
template <>
struct std::hash<runnel::Stream> : std::hash<runnel::StreamRef> {};
