// SPDX-License-Identifier: Apache-2.0
#include "capture/open_captures.hpp"

#include "base/max_devices.hpp"
#include "base/never_destroyed.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "capture/state.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct ListedCapture : OpenCapture {
  std::vector<native::event> events{};  // recorded in the capture
};
struct OpenCaptures {
  sync::Mutex beginning;  // locked while a capture is added to the list
  SpinLock lock;          // protects the rest
  std::vector<ListedCapture> all;
};
OpenCaptures& captures() { return never_destroyed<OpenCaptures>(); }

/// When the library's last wait for each device began, in units of sync::Clock.
constinit sync::Atomic<sync::Clock::rep> last_device_waits[max_devices]{};

/// Requires: the lock is held.
void note_open_captures() noexcept {
  const bool is_open = !captures().all.empty();
  capture_history.store(is_open ? CaptureHistory::open : CaptureHistory::seen,
                        std::memory_order_relaxed);
  if (is_open)
    slow_path_reasons.fetch_or(slow_path_captures, std::memory_order_relaxed);
  else
    slow_path_reasons.fetch_and(~slow_path_captures, std::memory_order_relaxed);
}

template <class IsWanted>
[[nodiscard]] OpenCapture find(IsWanted is_wanted) noexcept {
  const std::lock_guard lock{captures().lock};
  const auto found = std::find_if(captures().all.begin(), captures().all.end(), is_wanted);
  return found == captures().all.end() ? OpenCapture{} : static_cast<OpenCapture>(*found);
}

}  // namespace

std::unique_lock<sync::Mutex> block_captures() noexcept {
  std::unique_lock no_new_ones{captures().beginning};
  if (are_captures_open()) no_new_ones.unlock();
  return no_new_ones;
}

void announce_capture(OpenCapture capture) {
  close_capture(capture.begun_on.id);  // Other code has ended an earlier one.
  const int device = capture.device;
  {
    const std::lock_guard beginning{captures().beginning};
    const std::lock_guard lock{captures().lock};
    captures().all.push_back({std::move(capture)});
    note_open_captures();
  }
  outlast_device_wait(device);
}

void outlast_device_wait(int device) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto is_begun = [&wait = last_device_waits[device]] {
    return sync::Clock::now().time_since_epoch() -
               sync::Clock::duration{wait.load(std::memory_order_relaxed)} >
           std::chrono::milliseconds{1};
  };
  while (!is_begun()) sync::yield();
}

void note_device_wait(int device) noexcept {
  last_device_waits[device].store(sync::Clock::now().time_since_epoch().count(),
                                  std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void number_capture(uint64_t stream, uint64_t number) noexcept {
  const std::lock_guard lock{captures().lock};
  for (OpenCapture& each : captures().all)
    if (each.begun_on.id == stream) each.number = number;
}

OpenCapture find_capture(uint64_t number) noexcept {
  return find([&](const OpenCapture& each) { return each.number == number; });
}

OpenCapture own_capture() noexcept {
  return find([](const OpenCapture& each) { return each.thread == std::this_thread::get_id(); });
}

OpenCapture capture_begun_on(uint64_t stream) noexcept {
  return find([&](const OpenCapture& each) { return each.begun_on.id == stream; });
}

bool is_capture_open_on(int device) noexcept {
  const std::lock_guard lock{captures().lock};
  return std::any_of(captures().all.begin(), captures().all.end(),
                     [=](const OpenCapture& each) { return each.device == device; });
}

std::vector<OpenCapture> open_captures() {
  const std::lock_guard lock{captures().lock};
  return {captures().all.begin(), captures().all.end()};
}

void note_event(native::stream handle, native::event event) noexcept try {
  const uint64_t number = capture_number_of(handle);
  const std::lock_guard lock{captures().lock};
  for (ListedCapture& each : captures().all)
    if (std::erase(each.events, event); number != 0 && each.number == number)
      each.events.push_back(event);
} catch (const std::bad_alloc&) {  // then only the recording object rejects queries
}

bool is_event_of_open_capture(native::event event) noexcept {
  const std::lock_guard lock{captures().lock};
  return std::any_of(captures().all.begin(), captures().all.end(), [=](const ListedCapture& each) {
    return std::find(each.events.begin(), each.events.end(), event) != each.events.end();
  });
}

void note_broken(uint64_t stream, const char* operation) noexcept {
  const std::lock_guard lock{captures().lock};
  for (OpenCapture& each : captures().all)
    if (each.begun_on.id == stream && each.broken_by == nullptr) each.broken_by = operation;
}

void close_capture(uint64_t stream) noexcept {
  const OpenCapture closed = capture_begun_on(stream);  // destroys the functions outside the lock
  if (!closed) return;
  const std::lock_guard lock{captures().lock};
  std::erase_if(captures().all,
                [&](const OpenCapture& each) { return each.begun_on.id == stream; });
  note_open_captures();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
