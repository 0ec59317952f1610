// SPDX-License-Identifier: Apache-2.0
#include "overlap_streams.hpp"

#include "device_table.hpp"

#include <array>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr std::size_t most_kept = 8;  // of a device

struct Kept {
  std::array<native::stream, most_kept> streams{};
  std::size_t count = 0;
};
constinit std::mutex mutex;
constinit std::array<Kept, max_devices> kept{};

}  // namespace

Stream take_overlap_stream(Device device) {
  native::stream handle{};
  {
    const std::lock_guard lock{mutex};
    Kept& here = kept[static_cast<std::size_t>(device.ordinal())];
    if (here.count > 0) handle = here.streams[--here.count];
  }
  if (handle == nullptr) return Stream{device, {.name = "overlap"}};
  return Stream::from_native(handle, device, Ownership::take);
}

void keep_overlap_stream(Stream stream) noexcept try {
  const auto device = static_cast<std::size_t>(stream.device().ordinal());
  const std::lock_guard lock{mutex};
  Kept& here = kept[device];
  if (here.count == most_kept) return;
  here.streams[here.count] = stream.release();
  ++here.count;
} catch (...) {  // then it ends here
}

}  // namespace runnel::inline RUNNEL_ABI::detail
