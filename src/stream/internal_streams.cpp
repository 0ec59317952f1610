// SPDX-License-Identifier: Apache-2.0
#include "stream/internal_streams.hpp"

#include "base/announce.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "stream/capture.hpp"

#include <runnel/detail/access.hpp>

#include <array>
#include <cstddef>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// The internal streams of one device.
struct InternalStreams {
  sync::Mutex mutex;
  std::array<native::stream, 4> streams{};
  std::size_t next = 0;
};
constinit std::array<InternalStreams, max_devices> internal_streams{};

}  // namespace

native::stream pick_internal_stream(int device) noexcept {
  InternalStreams& own = internal_streams[static_cast<std::size_t>(device)];
  const auto find = [&]() -> native::stream {
    for (native::stream& stream : own.streams) {
      if (stream != nullptr && succeeded_or_note_capture(backend::stream_query(stream)))
        return stream;
      if (stream != nullptr) continue;
      const ScopedDevice on{device, ScopedDevice::no_throw};
      if (!succeeded_or_note_capture(backend::stream_create(stream, false, 0))) stream = nullptr;
      return stream;
    }
    return own.streams[own.next++ % own.streams.size()];
  };
  const std::lock_guard lock{own.mutex};
  const sync::TsanIgnore ignore;  // The user has not requested the query.
  return internal_call(find, any_capture_seen());
}

StreamRef view_internal_stream(native::stream stream, int device) {
  Slot* const slot = wrap_handle({stream, device, Blocking::no}, Wrap::view).slot;
  return Access::ref(slot, slot->id.load(std::memory_order_acquire));
}

bool wait_for_device(int device) noexcept {
  if (takes_part_in_capture(device)) return false;
  const ScopedDevice on{device, ScopedDevice::no_throw};
  return succeeded_or_forget(backend::device_synchronize()) ||
         succeeded_or_forget(backend::device_synchronize());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
