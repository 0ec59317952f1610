// SPDX-License-Identifier: Apache-2.0
#include "stream/own_streams.hpp"

#include "base/announce.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "stream/open_captures.hpp"

#include <runnel/detail/access.hpp>

#include <array>
#include <cstddef>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Those of one device.
class OwnStreams {
 public:
  [[nodiscard]] native::stream take(int device) noexcept {
    const std::lock_guard lock{mutex_};
    const sync::Unseen unseen;  // the user has not asked
    return own_call([&] { return find(device); }, if_captures_met());
  }

 private:
  [[nodiscard]] native::stream find(int device) noexcept {
    for (native::stream& stream : streams_) {
      if (stream == nullptr) return create(stream, device);
      if (succeeded_or_note_capture(backend::stream_query(stream))) return stream;
    }
    return streams_[next_++ % streams_.size()];
  }
  [[nodiscard]] static native::stream create(native::stream& stream, int device) noexcept {
    const ScopedDevice on{device, ScopedDevice::no_throw};
    if (!succeeded_or_note_capture(backend::stream_create(stream, false, 0))) stream = nullptr;
    return stream;
  }

  sync::Mutex mutex_;
  std::array<native::stream, 4> streams_{};
  std::size_t next_ = 0;
};
constinit std::array<OwnStreams, max_devices> own_streams{};

}  // namespace

native::stream take_own_stream(int device) noexcept { return own_streams[static_cast<std::size_t>(device)].take(device); }

StreamRef view_own_stream(native::stream stream, int device) {
  const NativeStream own{stream, device, false};
  Slot* slot = nullptr;
  if (wrap_handle(slot, own, Wrap::view) == Wrapped::needs_slot) {
    Slot* const fresh = take_slot();
    slot = fresh;
    if (wrap_handle(slot, own, Wrap::view) != Wrapped::published) give_back_slot(fresh);  // another thread was first
  }
  return Access::ref(slot, slot->id.load(std::memory_order_acquire));
}

bool wait_for_device(int device) noexcept {
  if (takes_part_in_capture(device)) return false;
  const ScopedDevice on{device, ScopedDevice::no_throw};
  return succeeded_or_forget(backend::device_synchronize()) || succeeded_or_forget(backend::device_synchronize());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
