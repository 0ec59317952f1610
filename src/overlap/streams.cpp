// SPDX-License-Identifier: Apache-2.0
#include "overlap/streams.hpp"

#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "stream/slots.hpp"

#include <array>
#include <cstdio>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr const char* stream_name = "overlap";
constexpr std::size_t most_kept = 8;  // streams of each device

struct Kept {
  std::array<native::stream, most_kept> streams{};
  std::size_t count = 0;
};
constinit sync::Mutex mutex;
constinit std::array<Kept, max_devices> kept{};

}  // namespace

Stream take_overlap_stream(Device device) {
  {
    const std::lock_guard lock{mutex};
    Kept& here = kept[static_cast<std::size_t>(device.ordinal())];
    if (here.count > 0) {
      Stream stream = Stream::from_native(here.streams[here.count - 1], device, Ownership::take);
      --here.count;  // not before from_native(), which may throw
      Slot& slot = live_slot(stream);
      // Profilers still know the handle by this name; a wrapped handle has no name of its own.
      std::snprintf(slot.name, sizeof slot.name, "%s", stream_name);
      return stream;
    }
  }
  return Stream{device, {.name = stream_name}};
}

void keep_overlap_stream(Stream stream) noexcept try {
  const auto device = static_cast<std::size_t>(stream.device().ordinal());
  const std::lock_guard lock{mutex};
  Kept& here = kept[device];
  if (here.count == most_kept) return;
  live_slot(stream).idle_at_end = true;
  here.streams[here.count] = stream.release();
  ++here.count;
} catch (...) {  // the stream is destroyed
}

}  // namespace runnel::inline RUNNEL_ABI::detail
