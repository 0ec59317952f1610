// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_current
/// The current stream of a thread: one for each device, the device's default stream until set. In a
/// forked child, reading and setting the current stream throw errc::forked. In a host function and
/// in a hook, setting it throws errc::not_permitted.
#pragma once

#include <runnel/detail/access.hpp>
#include <runnel/error.hpp>

#include <vector>

namespace runnel::inline RUNNEL_ABI {

class StreamLease;

namespace detail {
/// A Stream, StreamLease or ForeignStream that is a temporary, so that its stream ends with the
/// expression. S is as a forwarding reference deduces it.
template <class S>
concept TemporaryStream = !std::is_reference_v<S> && std::is_base_of_v<StreamRef, S> &&
                          !std::is_same_v<std::remove_cv_t<S>, StreamRef>;
/// The stream that a thread has set for one device; `slot` is null if it has set none.
struct CurrentStream {
  StreamSlot* slot = nullptr;
  std::uint64_t id = 0;
};
extern thread_local constinit CurrentStream current;
[[nodiscard]] StreamRef resolve_current_stream();
/// As the overloads in <runnel/error.hpp>, for the current stream.
void set_if_failed(std::error_code& code) noexcept;

}  // namespace detail

/// The stream that the calling thread has set for its current device; that device's default stream
/// if none was set or if the stream was destroyed. Makes no runtime call once a stream is set.
/// Therefore it notices a device that other code made current (`cudaSetDevice`) only after the next
/// `Device::current()` or guard.
[[nodiscard]] inline StreamRef current_stream() {
  const auto [slot, id] = detail::current;
  if (detail::is_live(slot, id)) [[likely]]
    return detail::Access::ref(slot, id);
  return detail::resolve_current_stream();
}
/// The stream that the calling thread has set for `device`; the default stream under the same
/// conditions.
[[nodiscard]] StreamRef current_stream(Device device);

/// Makes `stream` the calling thread's current stream of the stream's device, until changed. It
/// does not change the current device, unlike StreamRef::use().
void set_current_stream(StreamRef stream);
/// @cond
template <detail::TemporaryStream S>
void set_current_stream RUNNEL_REFUSED_TEMPORARY_STREAM(S&&);
/// @endcond

/// Waits for the current stream. @throws as StreamRef::synchronize()
inline void synchronize() { current_stream().synchronize(); }
///@{ As StreamRef::synchronize_for() and synchronize_until() of the current stream.
template <class Rep, class Period>
[[nodiscard]] bool synchronize_for(std::chrono::duration<Rep, Period> timeout) {
  return current_stream().synchronize_for(timeout);
}
template <class Clock, class Duration>
[[nodiscard]] bool synchronize_until(std::chrono::time_point<Clock, Duration> time) {
  return current_stream().synchronize_until(time);
}
///@}
/// The same, but throws nothing, as StreamRef::synchronize(code).
inline void synchronize(std::error_code& code) noexcept {
  code.clear();
  detail::set_if_failed(code);
}

/// Makes a stream and its device current for a scope. At the end of the scope, also after an
/// exception, the guard restores the device that was current and the stream that was current on the
/// guarded stream's device, even if `use()` has changed them meanwhile. If guards are destroyed out
/// of order, each restores what was current when it was constructed.
class [[nodiscard]] StreamGuard {
 public:
  /// Makes `stream` and its device current.
  [[nodiscard]] explicit StreamGuard(StreamRef stream);
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard();

  /// Guards `stream` instead, as if this guard had been constructed with it.
  void reset(StreamRef stream);
  /// @cond
  template <detail::TemporaryStream S>
  explicit StreamGuard RUNNEL_REFUSED_TEMPORARY_STREAM(S&&);
  void reset RUNNEL_REFUSED_TEMPORARY_STREAM(Stream&&);
  void reset RUNNEL_REFUSED_TEMPORARY_STREAM(StreamLease&&);
  /// @endcond
  /// The stream that the guard will restore.
  [[nodiscard]] StreamRef original_stream() const;
  /// The device that the guard will restore.
  [[nodiscard]] Device original_device() const noexcept { return found_device_; }

 private:
  void enter(StreamRef stream);
  void leave() noexcept;

  Device found_device_;
  int guarded_device_;
  detail::CurrentStream found_stream_;
};

/// A copy of a thread's current device and current streams, for use on another thread: write
/// `StreamContext here;` on the first thread and `StreamContext::Guard with{here};` on the second.
/// Task systems that resume a task on another thread need this, because the current streams belong
/// to the thread and do not follow the task.
class StreamContext {
 public:
  /// Copies the calling thread's current device and streams.
  StreamContext();

  /// Applies a context to the calling thread for a scope, and restores the thread's own device and
  /// streams at its end.
  class [[nodiscard]] Guard {
   public:
    /// Applies `context`. @throws errc::invalid_argument if one of its streams is another thread's
    /// default stream
    [[nodiscard]] explicit Guard(const StreamContext& context);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard();

   private:
    std::vector<detail::CurrentStream> found_;
    int found_device_;
  };

 private:
  std::vector<detail::CurrentStream> streams_;  // Indexed by device.
  int device_;
};

}  // namespace runnel::inline RUNNEL_ABI
