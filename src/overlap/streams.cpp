// SPDX-License-Identifier: Apache-2.0
#include "overlap/streams.hpp"

#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "slot/slots.hpp"

#include <array>
#include <cstdio>
#include <mutex>
#include <utility>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

constexpr const char* stream_name = "overlap";
constexpr std::size_t max_idle = 8;  // Of each device.

struct IdleStreams {
  std::array<native::stream, max_idle> streams{};
  std::size_t count = 0;
};
constinit sync::Mutex mutex;
constinit std::array<IdleStreams, max_devices> idle{};

}  // namespace

Stream acquire_overlap_stream(Device device) {
  {
    const std::lock_guard lock{mutex};
    IdleStreams& here = idle[static_cast<std::size_t>(device.ordinal())];
    if (here.count > 0) {
      Stream stream = Stream::from_native(here.streams[here.count - 1], device, Ownership::take);
      --here.count;  // Only after from_native(), which may throw.
      Slot& slot = live_slot(stream);
      // Profilers still show the handle under this name; a wrapped handle has no name.
      std::snprintf(slot.name, sizeof slot.name, "%s", stream_name);
      return stream;
    }
  }
  return Stream{device, {.name = stream_name}};
}

void release_overlap_stream(Stream stream) noexcept try {
  const auto device = static_cast<std::size_t>(stream.device().ordinal());
  const std::lock_guard lock{mutex};
  IdleStreams& here = idle[device];
  if (here.count == max_idle) return;
  live_slot(stream).idle_at_end = true;
  here.streams[here.count] = stream.release();
  ++here.count;
} catch (...) {  // The stream is destroyed.
}

}}}  // namespace runnel::RUNNEL_ABI::detail
