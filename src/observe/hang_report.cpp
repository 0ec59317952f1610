// SPDX-License-Identifier: Apache-2.0
// RUNNEL_HANG_REPORT=seconds. A wait of the host that lasts longer is reported once to stderr, with
// the state of each stream, and continues.
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/parse_size.hpp"
#include "base/process.hpp"
#include "base/start_thread.hpp"
#include "base/sync.hpp"
#include "device/internal_calls.hpp"
#include "slot/capture.hpp"
#include "slot/point.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constinit sync::Atomic<std::int64_t> limit_in_nanoseconds{0};  // of a wait without a report

double seconds_since(sync::Clock::time_point time) noexcept {
  return std::chrono::duration<double>{sync::Clock::now() - time}.count();
}

constexpr const char* idle = "idle";

/// Requires: the stream does not end meanwhile.
const char* state_of(const Slot& slot) noexcept {
  if (slot.thread != nullptr) return "a thread's default stream, which cannot be asked";
  if (is_only_viewed(slot)) return "other code's stream, which may have ended: not asked";
  const InternalCalls own{slot.device, ScopedDevice::no_throw};
  const StreamQueryLock beside_captures{slot};
  if (beside_captures.capture_state() != CaptureState::none) return "is being captured";
  const backend::status s = beside_captures.query();
  if (s == backend::ok) return idle;
  backend::forget_error(s);
  return backend::is_not_ready(s) ? "has work" : backend::error_name(s);
}

void write_operation(const OperationNotes::Note& note, uint64_t id) noexcept {
  const char* const operation = note.operation;
  if (operation == nullptr || note.stream != id) return;
  const sync::Clock::time_point time{sync::Clock::duration{note.time}};
  std::fprintf(stderr, "runnel:     %.1f s ago: %s", seconds_since(time), operation);
  if (const uint64_t other = note.other)
    std::fprintf(stderr, " (stream id %llu)", static_cast<unsigned long long>(other));
  std::fputc('\n', stderr);
}

void write_stream(StreamKey use) noexcept try {
  std::string stream;
  const char* state = nullptr;
  // Nothing is written while the handle is locked: the writer may wait for a reader.
  if (const HandleLock locked{use}) {
    stream = describe(use.slot, use.id);
    state = state_of(*use.slot);
  }
  if (state == nullptr) return;
  std::fprintf(stderr, "runnel:   %s: %s\n", stream.c_str(), state);
  if (state == idle) return;
  const OperationNotes& notes = use.slot->notes;
  const uint32_t next = notes.next;
  for (uint32_t i = 0; i < notes.all.size(); ++i)
    write_operation(notes.all[(next + i) % notes.all.size()], use.id);
} catch (const std::exception&) {  // no memory for the name
}

void write_streams() noexcept try {
  std::vector<StreamKey> streams = live_streams();
  std::ranges::sort(streams, {}, &StreamKey::id);
  for (const StreamKey each : streams) write_stream(each);
} catch (const std::exception&) {
}

/// The stream that last recorded each native event. Handles are reused, so the table never has more
/// entries than there were events at one time.
class Recorders {
 public:
  void set(native::event event, uint64_t stream) noexcept try {
    const std::lock_guard lock{mutex_};
    ids_[event] = stream;
  } catch (const std::bad_alloc&) {  // The report then does not name the stream.
  }
  uint64_t find(native::event event) noexcept {
    const std::lock_guard lock{mutex_};
    const auto found = ids_.find(event);
    return found == ids_.end() ? 0 : found->second;
  }

 private:
  sync::Mutex mutex_;
  std::unordered_map<native::event, uint64_t> ids_;
};
Recorders& recorders() { return never_destroyed<Recorders>(); }

/// The id of the stream that the operation waits for; 0 if it is not known.
uint64_t awaited_by(const Operation& operation) noexcept {
  if (operation.other_stream != 0) return operation.other_stream;
  return operation.event != nullptr ? recorders().find(operation.event) : 0;
}

/// Checks the running waits from time to time. Its thread starts with the first wait, and sleeps
/// while there are none.
class HangReporter {
 public:
  void add(const Operation& operation) noexcept try {
    const uint64_t stream = operation.stream.id != 0 ? operation.stream.id : awaited_by(operation);
    const std::lock_guard lock{mutex_};
    if (!started_ && !start()) return;
    waits_.push_back({&operation, stream, gettid(), sync::Clock::now()});
    ++signal_;
    signal_.notify_one();
  } catch (const std::bad_alloc&) {  // This wait is not reported.
  }
  void remove(const Operation& operation) noexcept {
    const std::lock_guard lock{mutex_};
    std::erase_if(waits_, [&](const Wait& wait) { return wait.operation == &operation; });
  }
  void stop() noexcept {
    const std::lock_guard lock{reporting_};
    stopped_ = true;
  }

 private:
  struct Wait {
    const Operation* operation;  // outlives the entry
    uint64_t stream;
    int thread;
    sync::Clock::time_point since;
    bool is_reported = false;
  };
  struct LateWait {
    bool is_any = false;
    char text[200]{};  // Empty if no wait is late.
  };
  [[nodiscard]] bool start() noexcept {
    if (!start_thread([this] { work(); })) return false;  // Nothing is reported then.
    static constinit ExitHook at_exit{[]() noexcept { never_destroyed<HangReporter>().stop(); }};
    call_at_exit(at_exit);
    return started_ = true;
  }
  void work() noexcept {
    const std::chrono::nanoseconds limit{limit_in_nanoseconds.load()};
    const std::chrono::nanoseconds pause = std::clamp<std::chrono::nanoseconds>(
        limit / 8, std::chrono::milliseconds{1}, std::chrono::milliseconds{250});
    for (;;) {
      const uint32_t seen = signal_;
      const LateWait found = find_late_wait(limit);
      if (!report_unless_stopped(found)) return;
      if (found.is_any)
        sync::sleep_for(pause);
      else
        signal_.wait(seen);
    }
  }
  /// Reports a late wait. False once the process exits.
  [[nodiscard]] bool report_unless_stopped(const LateWait& found) noexcept {
    const std::lock_guard lock{reporting_};
    if (!stopped_ && *found.text != '\0') report(found.text);
    return !stopped_;
  }
  [[nodiscard]] LateWait find_late_wait(std::chrono::nanoseconds limit) noexcept {
    LateWait found;
    const auto now = sync::Clock::now();
    const std::lock_guard lock{mutex_};
    found.is_any = !waits_.empty();
    // The latest wait first: it may be a part of another wait, and is more precise.
    for (auto wait = waits_.rbegin(); wait != waits_.rend(); ++wait) {
      if (wait->is_reported || now - wait->since < limit) continue;
      wait->is_reported = true;
      char what[48] = "";
      if (wait->stream != 0)
        std::snprintf(what, sizeof what, " (stream id %llu)",
                      static_cast<unsigned long long>(wait->stream));
      else if (wait->operation->device >= 0)
        std::snprintf(what, sizeof what, " (device %d)", wait->operation->device);
      std::snprintf(found.text, sizeof found.text, "thread %d has tried for %.1f s to %s%s",
                    wait->thread, seconds_since(wait->since), wait->operation->name, what);
      break;
    }
    return found;
  }

  static void report(const char* wait) noexcept {
    std::fprintf(stderr, "runnel: a wait lasts long: %s\n", wait);
    write_streams();
    std::fprintf(stderr, "runnel: the wait goes on\n");
    std::fflush(stderr);
  }

  sync::Mutex mutex_;  // protects the list
  std::vector<Wait> waits_;
  bool started_ = false;
  sync::Mutex reporting_;  // locked while a report makes runtime calls
  bool stopped_ = false;
  sync::Atomic<uint32_t> signal_{0};
};

void note_operation(const Operation& operation) noexcept {
  OperationNotes& notes = operation.stream.slot->notes;
  OperationNotes::Note& note =
      notes.all[notes.next.fetch_add(1, std::memory_order_relaxed) % notes.all.size()];
  note.stream.store(operation.stream.id, std::memory_order_relaxed);
  note.time.store(sync::Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  note.other.store(awaited_by(operation), std::memory_order_relaxed);
  note.operation.store(operation.name, std::memory_order_release);
}

void observe_waits(const Operation& operation) noexcept {
  switch (operation.kind) {
    case OperationKind::host_wait:
      return operation.phase == HookPhase::before
                 ? never_destroyed<HangReporter>().add(operation)
                 : never_destroyed<HangReporter>().remove(operation);
    case OperationKind::entered:
      return note_operation(operation);
    case OperationKind::event_recorded:
    case OperationKind::event_adopted:
      return recorders().set(operation.event, operation.stream.id);
    default:
      return;
  }
}

bool is_report_requested() noexcept {
  const char* const text = std::getenv("RUNNEL_HANG_REPORT");
  if (text == nullptr || *text == '\0') return false;
  const std::optional<double> seconds = parse_number<double>(text);
  if (!seconds || !(*seconds >= 0 && *seconds <= 1e9)) {
    std::fprintf(stderr,
                 "runnel: RUNNEL_HANG_REPORT=%s is not understood, and nothing is reported: write "
                 "a number of seconds\n",
                 text);
    return false;
  }
  const std::int64_t limit = std::llround(*seconds * 1e9);
  if (limit == 0) return false;
  limit_in_nanoseconds = limit;
  slow_path_reasons |= slow_path_observer;
  return true;
}

}  // namespace

extern const Observer hang_report_observer;
constinit const Observer hang_report_observer{observer_hangs, is_report_requested, observe_waits};

}  // namespace runnel::inline RUNNEL_ABI::detail
