// SPDX-License-Identifier: Apache-2.0
#include "observe/trace_times.hpp"

#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/immortal.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "stream/event_pool.hpp"

#include <runnel/detail/backend.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr backend::EventKind timed{.timed = true, .blocking_wait = false, .interprocess = false};
constexpr double longest_distance = 10e6;  // microseconds: a float of milliseconds is then good for one

/// An event of a device whose time on the host's clock is known.
struct DeviceClock {
  enum class State : unsigned char { unused, works, broken } state = State::unused;
  native::event anchor{};
  double time = 0;
};
struct Clocks {
  sync::Mutex mutex;
  std::array<DeviceClock, max_devices> all{};
};
Clocks& clocks() { return immortal<Clocks>(); }

[[nodiscard]] native::event try_take_event(int device) noexcept try {
  return take_event(device, timed, "trace a stream");
} catch (...) {  // the runtime refused it, or there is no memory: the interval is lost
  return {};
}

/// Records an event on a stream that has nothing else to do, and waits for it. The event lies between two readings of the host's clock. On
/// a busy machine these may be far apart, so the closest pair of up to 20 attempts counts.
void start_clock(DeviceClock& clock, int device) noexcept {
  clock.state = DeviceClock::State::broken;
  const ScopedDevice on{device, ScopedDevice::no_throw};
  native::stream stream{};
  if (!succeeded_or_forget(backend::stream_create(stream, false, 0))) return;
  constexpr double close_enough = 50;  // microseconds
  double closest = 1e9;
  for (int attempt = 0; attempt < 20 && closest > close_enough; ++attempt) {
    native::event event = try_take_event(device);
    const double before = trace_now();
    const bool happened = event != nullptr && succeeded_or_forget(backend::event_record(event, stream)) &&
                          succeeded_or_forget(backend::event_synchronize(event));
    const double apart = trace_now() - before;
    if (happened && apart < closest) {
      closest = apart;
      std::swap(clock.anchor, event);
      clock.time = before + apart / 2;
      clock.state = DeviceClock::State::works;
    }
    if (event != nullptr) return_event(event, device, timed);
    if (!happened) break;
  }
  succeeded_or_forget(backend::stream_destroy(stream));
}

[[nodiscard]] bool has_clock(int device) noexcept {
  const std::lock_guard lock{clocks().mutex};
  DeviceClock& clock = clocks().all[static_cast<std::size_t>(device)];
  if (clock.state == DeviceClock::State::unused) start_clock(clock, device);
  return clock.state == DeviceClock::State::works;
}

/// Takes the event. If it is far from the anchor, it becomes the anchor, so that later times stay exact.
[[nodiscard]] PointState read_time(TracePoint& point) noexcept {
  native::event event = std::exchange(point.event, {});
  float milliseconds = 0;
  PointState state = PointState::lost;
  {
    const std::lock_guard lock{clocks().mutex};
    DeviceClock& clock = clocks().all[static_cast<std::size_t>(point.device)];
    if (succeeded_or_forget(backend::event_elapsed(milliseconds, clock.anchor, event))) {
      point.time = clock.time + 1000.0 * static_cast<double>(milliseconds);
      state = PointState::known;
      if (point.time - clock.time > longest_distance) {
        std::swap(clock.anchor, event);
        clock.time = point.time;
      }
    }
  }
  return_event(event, point.device, timed);
  return state;
}

}  // namespace

double trace_now() noexcept {
  static const sync::Clock::time_point start = sync::Clock::now();
  return std::chrono::duration<double, std::micro>{sync::Clock::now() - start}.count();
}

TracePoint trace_point(const HookEvent& event) noexcept {
  TracePoint point;
  if (event.captured) return point;
  const RelaxedCapture relaxed;
  const sync::Unseen unseen;  // the user has not asked
  const backend::status s = backend::stream_query(event.native_stream);
  if (s == backend::ok) {
    point.time = trace_now();
    return point;
  }
  backend::forget_error(s);
  if (!backend::is_not_ready(s) || !has_clock(event.device)) return point;
  const native::event taken = try_take_event(event.device);
  if (taken == nullptr) return point;
  if (succeeded_or_forget(backend::event_record(taken, event.native_stream))) {
    point.event = taken;
    point.device = event.device;
  } else {
    return_event(taken, event.device, timed);
  }
  return point;
}

PointState resolve(TracePoint& point) noexcept {
  if (point.event == nullptr) return point.time >= 0 ? PointState::known : PointState::lost;
  const RelaxedCapture relaxed;
  const sync::Unseen unseen;
  const backend::status s = backend::event_query(point.event);
  if (s == backend::ok) return read_time(point);
  backend::forget_error(s);
  if (backend::is_not_ready(s)) return PointState::not_yet;
  forget(point);
  return PointState::lost;
}

void forget(TracePoint& point) noexcept {
  if (point.event == nullptr) return;
  const RelaxedCapture relaxed;
  return_event(std::exchange(point.event, {}), point.device, timed);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
