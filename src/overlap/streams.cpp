// SPDX-License-Identifier: Apache-2.0
#include "overlap/streams.hpp"

#include "base/max_devices.hpp"
#include "base/sync.hpp"
#include "slot/slots.hpp"

#include <array>
#include <cstdio>
#include <mutex>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

constexpr const char* stream_name = "overlap";
constexpr std::size_t max_idle = 8;  // Of each device.

struct IdleStreams {
  std::array<native::stream, max_idle> streams{};
  std::size_t count = 0;
  std::size_t places = 0;  // the stored streams, and those that are on the way in or out
};
constinit sync::Mutex mutex;
constinit std::array<IdleStreams, max_devices> all_idle{};

/// Calls `f` with the device's streams under the lock. No stream begins or ends under it, because
/// that calls hooks, and a hook may wait for another thread that calls overlap().
template <class F>
auto with_idle(Device device, F f) noexcept {
  const std::lock_guard lock{mutex};
  return f(all_idle[static_cast<std::size_t>(device.ordinal())]);
}
/// Requires: there is a place for it.
void store(Device device, native::stream stream) noexcept {
  with_idle(device, [=](IdleStreams& idle) { idle.streams[idle.count++] = stream; });
}

}  // namespace

Stream acquire_overlap_stream(Device device) {
  const native::stream handle = with_idle(device, [](IdleStreams& idle) {
    return idle.count > 0 ? idle.streams[--idle.count] : native::stream{};
  });
  if (handle == nullptr) return Stream{device, {.name = stream_name}};
  try {
    Stream stream = Stream::from_native(handle, device, Ownership::take);
    // Profilers still show the handle under this name; a wrapped handle has no name.
    Slot& slot = live_slot(stream);
    std::snprintf(slot.name, sizeof slot.name, "%s", stream_name);
    with_idle(device, [](IdleStreams& idle) { --idle.places; });
    return stream;
  } catch (...) {
    store(device, handle);
    throw;
  }
}

void release_overlap_stream(Stream stream) noexcept try {
  const Device device = stream.device();
  live_slot(stream).idle_at_end = true;
  const bool has_place = with_idle(device, [](IdleStreams& idle) {
    if (idle.places == max_idle) return false;
    ++idle.places;
    return true;
  });
  if (has_place) store(device, stream.release());
} catch (...) {  // The stream is destroyed.
}

}}}  // namespace runnel::RUNNEL_ABI::detail
