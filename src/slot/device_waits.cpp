// SPDX-License-Identifier: Apache-2.0
// Waits for devices. No runtime has a bounded device wait, or a query. So a library thread waits
// for the device, and the caller polls the result of that thread.
#include "slot/device_waits.hpp"

#include "base/announce.hpp"
#include "base/catch_errors_into.hpp"
#include "base/check.hpp"
#include "base/not_copied.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/start_thread.hpp"
#include "base/sync.hpp"
#include "capture/open_captures.hpp"
#include "device/device_call.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/slots.hpp"

#include <runnel/device.hpp>

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

/// Whether a wait that begins now breaks no capture.
bool may_wait(int device) noexcept {
  // Only a wait that may begin is noted: captures that begin wait for it.
  if (takes_part_in_capture(device)) return false;
  note_device_wait(device);
  return !takes_part_in_capture(device);
}

/// Returns `unknown` at once if the wait would break a capture. `first` becomes the runtime's first
/// error, unless that is of a capture for which the caller waits and calls this again.
[[nodiscard]] Progress synchronize(int device, backend::status& first) noexcept {
  const ScopedDevice on{device, ScopedDevice::no_throw};
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!may_wait(device)) return Progress::unknown;
    // ScopedDevice may have failed, and the wait would be for another device.
    backend::status s = single_device() ? backend::ok : backend::set_device(device);
    if (s == backend::ok) s = backend::device_synchronize();
    if (attempt == 0 && (first == backend::ok || backend::classify(first) == errc::capture))
      first = s;
    if (succeeded_or_forget(s)) return Progress::complete;
  }
  return takes_part_in_capture(device) ? Progress::unknown : Progress::lost;
}

/// `callers`: the number of threads of the program that wait for the result. With it, waits until
/// the wait breaks no capture.
[[nodiscard]] Progress wait(int device, backend::status& first,
                            const sync::Atomic<int>* callers = nullptr) noexcept {
  const std::vector<AwaitedTimeline> awaited = begin_device_wait(device);
  Progress result{};
  block_until([&] {
    // While the process exits, the runtime is called only for its other threads.
    const bool is_over =
        release_mode() == Release::never && (callers == nullptr || callers->load() == 0);
    result = is_over ? Progress::unknown : synchronize(device, first);
    return result != Progress::unknown || callers == nullptr;
  });
  for (const auto& [slot, number] : awaited) slot->timeline.end_wait(number, result);
  return result;
}

/// Waits for one device on behalf of all threads that have requested a wait. Its thread lives until
/// the last requested wait has completed, even if all callers have given up.
class DeviceWaiter {
 public:
  /// Requests a wait that begins after this call. Returns its number; 0 if the system has no
  /// thread.
  uint64_t request(int device) noexcept {
    const std::lock_guard lock{mutex_};
    if (!is_waiting_ && !start_thread([this, device] { work(device); })) return 0;
    is_waiting_ = true;
    return ++requested_;
  }
  /// The result of this wait or a later one; nothing if it has not completed.
  [[nodiscard]] std::optional<backend::status> result(uint64_t number) {
    const std::lock_guard lock{mutex_};
    if (completed_ < number) return std::nullopt;
    sync::happens_after(this);
    return result_;
  }
  sync::Atomic<int> callers{0};

 private:
  void work(int device) noexcept {
    std::unique_lock lock{mutex_};
    while (completed_ < requested_) {
      const uint64_t number = requested_;
      lock.unlock();
      backend::status first = backend::ok;
      static_cast<void>(wait(device, first, &callers));
      lock.lock();
      sync::happens_before(this);
      completed_ = number;
      result_ = first;
    }
    is_waiting_ = false;
  }

  sync::Mutex mutex_;
  bool is_waiting_ = false;
  uint64_t requested_ = 0;
  uint64_t completed_ = 0;
  backend::status result_ = backend::ok;
};
constinit std::array<DeviceWaiter, max_devices> waiters{};

}  // namespace

Progress wait_for_device(int device) noexcept {
  backend::status ignored = backend::ok;
  return wait(device, ignored);
}

void request_device_wait(int device) noexcept {
  static_cast<void>(waiters[static_cast<size_t>(device)].request(device));
}

}  // namespace detail

using namespace detail;

void Device::synchronize() const {
  const CurrentDeviceCall call{ordinal_, "wait for a device"};
  refuse_wait_in_capture(ordinal_, call.operation());
  {
    const ScopedWait wait{call.operation(), {.device = ordinal_}};
    call.check(backend::device_synchronize());
  }
  emit_complete(ordinal_);
}

void detail::set_if_failed(std::error_code& code, Device device) noexcept {
  catch_errors_into(code, [&] { device.synchronize(); });
}

bool Device::synchronize_to(std::chrono::steady_clock::time_point deadline) const {
  const DeviceCall call{ordinal_, "wait for a device"};
  refuse_wait_in_capture(ordinal_, call.operation());
  DeviceWaiter& waiter = waiters[static_cast<size_t>(ordinal_)];
  struct Caller : NotCopied {
    explicit Caller(sync::Atomic<int>& of) noexcept : count{of} { count.fetch_add(1); }
    ~Caller() { count.fetch_sub(1); }
    sync::Atomic<int>& count;
  } const caller{waiter.callers};
  const uint64_t number = waiter.request(ordinal_);
  if (number == 0)
    throw_error(errc::out_of_memory, call.operation(),
                "the system has no thread to wait for the device");
  std::optional<backend::status> result;
  const ScopedWait wait{call.operation(), {.device = ordinal_}};
  if (!poll_until(deadline, [&] { return (result = waiter.result(number)).has_value(); }))
    return false;
  call.check(*result);
  emit_complete(ordinal_);
  return true;
}

}  // namespace runnel::inline RUNNEL_ABI
