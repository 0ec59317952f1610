// SPDX-License-Identifier: Apache-2.0
/// The current stream: per thread and per device, the device's default stream until set. In a forked child reading and setting it throw
/// errc::forked.
#pragma once

#include <runnel/device.hpp>
#include <runnel/stream.hpp>

#include <cstdint>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// What the calling thread has set. `slot` and `id` name the current stream of `device`; the streams of its other devices lie in `others`.
struct CurrentStream {
  StreamSlot* slot = nullptr;
  std::uint64_t id = 0;
};
extern thread_local constinit CurrentStream current;
[[nodiscard]] StreamRef resolve_current_stream();

}  // namespace detail

/// The stream set for the current device on the calling thread; that device's default stream if none was set or it was destroyed.
/// Makes no runtime call once set: a device made current behind runnel's back (`cudaSetDevice`) is seen at the next
/// `Device::current()` or guard.
[[nodiscard]] inline StreamRef current_stream() {
  const auto [slot, id] = detail::current;
  if (detail::is_live(slot, id)) [[likely]]
    return detail::Access::ref(slot, id);
  return detail::resolve_current_stream();
}
/// The stream set for that device on the calling thread.
[[nodiscard]] StreamRef current_stream(Device device);

/// Waits for the current stream.
inline void synchronize() { current_stream().synchronize(); }

/// Makes a stream and its device current for a scope. On every way out it restores the device that it found, and the stream that it
/// found on the guarded stream's device, whatever `use()` set in between. Guards that end out of order each restore what they found.
class [[nodiscard]] StreamGuard {
 public:
  /// Makes `stream` and its device current.
  explicit StreamGuard(StreamRef stream);
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard();

  /// Guards another stream instead, as if this guard had been made with it.
  void reset(StreamRef stream);
  /// What the guard will restore.
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

/// A thread's current device and its current streams, to be carried to another thread: `StreamContext here;` there, and
/// `StreamContext::Guard with{here};` on the other thread. Task systems that resume on another thread need this: nothing follows by itself.
class StreamContext {
 public:
  /// Takes the calling thread's setting.
  StreamContext();

  /// Applies a context to the calling thread for a scope, and restores what it found afterwards.
  class [[nodiscard]] Guard {
   public:
    /// Applies `context`.
    explicit Guard(const StreamContext& context);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard();

   private:
    std::vector<detail::CurrentStream> found_;
    int found_device_;
  };

 private:
  std::vector<detail::CurrentStream> streams_;  // by device
  int device_;
};

}  // namespace runnel::inline RUNNEL_ABI
