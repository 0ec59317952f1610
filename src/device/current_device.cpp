// SPDX-License-Identifier: Apache-2.0
#include "device/current_device.hpp"

#include "base/check.hpp"
#include "base/pageable_policy.hpp"
#include "base/process.hpp"
#include "base/thread_end.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"

#include <array>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

thread_local constinit CurrentStream current{};

thread_local constinit int cached_device = -1;

namespace {

/// The current streams of the thread's other devices. Allocated when the thread uses a second
/// device.
using Others = std::array<CurrentStream, max_devices>;
// A pointer, because a user's thread_local guard may outlive a thread_local table. A new table is
// then made while the thread ends.
thread_local constinit Others* others = nullptr;

/// Allocates the table if there may be a second device, so that the end of a scope need not
/// allocate.
/// @throws std::bad_alloc
void reserve_others() {
  if (others != nullptr || single_device()) return;
  others = new Others{};
  at_thread_end([](void*) { delete std::exchange(others, nullptr); }, nullptr);
}

void reset_current_device() noexcept {
  cached_device = -1;
  current = {};
  if (others != nullptr) *others = {};
}

void cache_device(int device) noexcept {
  if (device == cached_device) return;
  // The next read then calls the runtime, and throws in a forked child.
  if (cached_device < 0) call_in_forked_child(reset_current_device);
  if (cached_device >= 0) {
    const CurrentStream next = stream_set_on(device);
    const CurrentStream left = std::exchange(current, next);
    const int left_device = std::exchange(cached_device, device);
    set_stream_on(left_device, left);
  }
  cached_device = device;
}

}  // namespace

CurrentStream stream_set_on_another(int device) noexcept {
  return others != nullptr ? (*others)[static_cast<size_t>(device)] : CurrentStream{};
}

void set_stream_on_another(int device, CurrentStream stream) noexcept try {
  if (stream.slot != nullptr) reserve_others();
  if (others != nullptr) (*others)[static_cast<size_t>(device)] = stream;
} catch (const std::bad_alloc&) {
}

void reset_thread_settings() noexcept {
  reset_current_device();
  policy_of_thread = Pageable::stage;
}

int read_current_device(const char* operation) {
  if (cached_device >= 0 && (single_device() || in_host_function)) return cached_device;
  refuse_in_child(operation);
  if (cached_device < 0) require_device(0, operation);
  reserve_others();
  int device = 0;
  if (!in_host_function) check(backend::get_device(device), operation);
  cache_device(device);
  return device;
}

void change_current_device(int device, const char* operation) {
  if (!in_host_function && (!single_device() || cached_device < 0)) {
    if (const backend::status s = backend::set_device(device); s != backend::ok) {
      int found = device;  // The call may have taken effect in spite of the error.
      if (cached_device >= 0 && backend::get_device(found) == backend::ok && found == device)
        restore_device(cached_device);
      throw_status(s, operation);
    }
  }
  cache_device(device);
}

void restore_current_device(int device) noexcept {
  if (is_forked_child()) return;  // reset_current_device() stays in effect.
  if (!single_device() && release_mode() == Release::now) restore_device(device);
  cache_device(device);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
