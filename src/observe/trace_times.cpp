// SPDX-License-Identifier: Apache-2.0
#include "observe/trace_times.hpp"

#include "backend.hpp"
#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/relaxed_capture.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/point.hpp"

#include <array>
#include <cstddef>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr const char* tracing = "trace a stream";
// In microseconds. At longer distances, a float of milliseconds is less exact than 1 us.
constexpr double longest_distance = 10e6;

/// An event of a device with a known time on the host's clock.
struct DeviceClock {
  enum class State : unsigned char { unused, works, broken } state = State::unused;
  EventRef anchor{};
  double time = 0;
};
/// In microseconds since the first call of trace_now().
double trace_time(sync::Clock::time_point time) noexcept {
  static const sync::Clock::time_point start = time;
  return std::chrono::duration<double, std::micro>{time - start}.count();
}

struct Clocks {
  sync::Mutex mutex;
  std::array<DeviceClock, max_devices> all{};
};
Clocks& clocks() { return never_destroyed<Clocks>(); }

void start_clock(DeviceClock& clock, int device) noexcept {
  clock.state = DeviceClock::State::broken;
  const ScopedDevice on{device, ScopedDevice::no_throw};
  native::stream stream{};
  if (!succeeded_or_forget(backend::stream_create(stream, false, 0))) return;
  auto [anchor, time] = match_clocks([&] {
    EventRef event = try_take_event(device, timed_event, tracing);
    const bool happened = event &&
                          succeeded_or_forget(backend::event_record(event.get(), stream)) &&
                          succeeded_or_forget(backend::event_synchronize(event.get()));
    return happened ? std::move(event) : EventRef{};
  });
  succeeded_or_forget(backend::stream_destroy(stream));
  if (!anchor) return;
  clock = {DeviceClock::State::works, std::move(anchor), trace_time(time)};
}

bool has_clock(int device) noexcept {
  const std::lock_guard lock{clocks().mutex};
  DeviceClock& clock = clocks().all[static_cast<size_t>(device)];
  if (clock.state == DeviceClock::State::unused) start_clock(clock, device);
  return clock.state == DeviceClock::State::works;
}

/// Consumes the event. An event far from the anchor becomes the new anchor, so that later times
/// stay exact.
PointState read_time(TracePoint& point) noexcept {
  EventRef event = std::move(point.event);
  float milliseconds = 0;
  const std::lock_guard lock{clocks().mutex};
  DeviceClock& clock = clocks().all[static_cast<size_t>(event->device)];
  if (!succeeded_or_forget(backend::event_elapsed(milliseconds, clock.anchor.get(), event.get())))
    return PointState::unknown;
  point.time = clock.time + 1000.0 * static_cast<double>(milliseconds);
  if (point.time - clock.time > longest_distance) {
    std::swap(clock.anchor, event);
    clock.time = point.time;
  }
  return PointState::known;
}

}  // namespace

double trace_now() noexcept { return trace_time(sync::Clock::now()); }

TracePoint trace_point(const Operation& operation) noexcept {
  TracePoint point;
  if (operation.captured || operation.stream.slot == nullptr) return point;
  const HandleLock locked{operation.stream};
  if (!locked) return point;
  const RelaxedCapture relaxed;
  const sync::TsanIgnore ignore;  // The user has not requested the query.
  const backend::status s = StreamQueryLock{*operation.stream.slot}.query();
  if (s == backend::ok) {
    point.time = trace_now();
    return point;
  }
  backend::forget_error(s);
  if (!backend::is_not_ready(s) || !has_clock(locked->device)) return point;
  // Without an event the interval is dropped.
  EventRef taken = try_take_event(locked->device, timed_event, tracing);
  if (taken && succeeded_or_forget(backend::event_record(taken.get(), locked->handle)))
    point.event = std::move(taken);
  return point;
}

PointState resolve(TracePoint& point) noexcept {
  if (!point.event) return point.time >= 0 ? PointState::known : PointState::unknown;
  const sync::TsanIgnore ignore;
  const backend::status s = internal_call([&] { return backend::event_query(point.event.get()); });
  if (s == backend::ok) return read_time(point);
  backend::forget_error(s);
  if (backend::is_not_ready(s)) return PointState::pending;
  return PointState::unknown;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
