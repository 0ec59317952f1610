// SPDX-License-Identifier: Apache-2.0
#include <runnel/trace.hpp>

#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "observe/hook_event.hpp"
#include "observe/trace_activities.hpp"
#include "observe/trace_file.hpp"
#include "observe/trace_times.hpp"
#include "slot/stream_call.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

// About 100 MB. Further slices are only counted.
constexpr size_t max_slices = size_t{1} << 20;

/// An operation that has begun, or an interval of a stream with unknown times.
struct Interval {
  TraceSlice slice{};
  TracePoint begin;
  TracePoint end;
};

struct Recording {
  // No runtime call is made under it, since the call may run a host function on this thread.
  sync::Mutex mutex;
  TraceContents contents;
  std::unordered_map<uint64_t, Interval> open;  // by key_of()
  std::vector<Interval> pending;
  size_t resolve_threshold =
      256;                      // the number of pending intervals that triggers resolve_pending()
  std::set<std::string> names;  // of ranges
  std::string file;
  bool is_unwritable_reported = false;
  sync::Mutex starting;
  sync::Mutex resolving;  // locked by the thread that resolves pending intervals
};
Recording& recording() { return never_destroyed<Recording>(); }

bool is_interval_of_stream(HookKind kind) noexcept {
  return kind == HookKind::copy || kind == HookKind::fill || kind == HookKind::graph_launch ||
         kind == HookKind::range;
}

TraceRow thread_row() noexcept { return {-1, static_cast<uint64_t>(gettid())}; }

// Requires, for the following functions: the mutex is locked. @throws std::bad_alloc

void name_row(Recording& r, const TraceRow& row, const char* name) {
  const auto [entry, is_new] = r.contents.rows.try_emplace(row);
  if (!is_new && (row.device < 0 || *name == '\0')) return;
  const std::string number = std::to_string(row.id);
  if (row.device < 0)
    entry->second = "thread " + number;
  else
    entry->second =
        *name != '\0' ? std::string{name} + " (stream " + number + ")" : "stream " + number;
}

void add(Recording& r, const TraceSlice& slice) {
  if (r.contents.slices.size() < max_slices)
    r.contents.slices.push_back(slice);
  else
    ++r.contents.dropped;
}

[[nodiscard]] TraceSlice slice_of(Recording& r, const HookEvent& event, double begin) {
  const char* const name = event.kind == HookKind::range
                               ? r.names.emplace(event.operation).first->c_str()
                               : event.operation;
  return {.name = name,
          .category = to_string(event.kind),
          .failed = event.failed,
          .row = thread_row(),
          .begin = begin,
          .end = -1,
          .number = event.number,
          .stream = event.stream,
          .other = event.other_stream,
          .bytes = event.bytes};
}

/// The bit distinguishes a host function from the call that has enqueued it. Both have the same
/// number, and the function may run before the call returns.
uint64_t key_of(const HookEvent& event) noexcept {
  return event.number << 1U | uint64_t{event.kind == HookKind::host_function_run};
}

void end_operation(Recording& r, const HookEvent& event, double now, TracePoint& end) {
  const auto node = r.open.extract(key_of(event));
  if (node.empty()) return;  // it began before the trace did
  Interval& interval = node.mapped();
  const TraceRow row{event.device, event.stream};
  interval.slice.failed = event.failed;
  interval.slice.end = now;
  if (event.kind == HookKind::host_function_run) interval.slice.row = row;
  if (event.kind != HookKind::range) add(r, interval.slice);
  if (!is_interval_of_stream(event.kind) || event.captured) return;
  interval.slice.row = row;
  if (r.pending.size() >= max_slices) {
    ++r.contents.dropped;
    return;
  }
  interval.end = std::move(end);
  r.pending.push_back(std::move(interval));
}

/// Resolves the times of pending intervals. Intervals of unfinished work stay. Never blocks.
void resolve_pending() noexcept try {
  Recording& r = recording();
  const std::unique_lock resolving{r.resolving, std::try_to_lock};
  if (!resolving.owns_lock() || in_host_function) return;
  std::vector<Interval> all;
  std::vector<TraceSlice> known;
  {
    const std::lock_guard lock{r.mutex};
    known.reserve(r.pending.size());
    all.swap(r.pending);
  }
  std::erase_if(all, [&](Interval& each) {
    const PointState begin = resolve(each.begin);
    const PointState end = resolve(each.end);
    if (begin == PointState::pending || end == PointState::pending) return false;
    if (begin == PointState::unknown || end == PointState::unknown) return true;
    each.slice.begin = each.begin.time;
    each.slice.end = std::max(each.begin.time, each.end.time);
    known.push_back(each.slice);
    return true;
  });
  try {
    const std::lock_guard lock{r.mutex};
    for (const TraceSlice& slice : known) add(r, slice);
    r.pending.insert(r.pending.begin(), std::move_iterator{all.begin()},
                     std::move_iterator{all.end()});
    r.resolve_threshold = std::max<size_t>(256, 2 * r.pending.size());
  } catch (const std::bad_alloc&) {  // These intervals are dropped.
  }
} catch (const std::bad_alloc&) {  // the intervals stay
}

void collect(const Operation& operation) noexcept {
  if (!is_for_hooks(operation)) return;
  StreamName name;
  const HookEvent event = hook_event(operation, name);
  const bool is_of_stream = is_interval_of_stream(event.kind);
  const bool is_before = event.phase == HookPhase::before;
  const double called = trace_now();
  note_stream(event);
  TracePoint point = is_of_stream ? trace_point(operation) : TracePoint{};
  const double now = is_before ? trace_now() : called;  // leaves out the trace's own time
  bool must_resolve = false;
  Recording& r = recording();
  try {
    const std::lock_guard lock{r.mutex};
    name_row(r, thread_row(), "");
    if (event.stream != 0 && event.device >= 0)
      name_row(r, {event.device, event.stream}, event.stream_name);
    if (is_before) {
      if (r.open.size() < max_slices)
        r.open[key_of(event)] = {slice_of(r, event, now), std::move(point), {}};
    } else if (is_of_stream || r.open.contains(key_of(event)))
      end_operation(r, event, now, point);
    else
      add(r, slice_of(r, event, now));
    must_resolve = is_of_stream && r.pending.size() >= r.resolve_threshold;
  } catch (const std::bad_alloc&) {  // This event is dropped.
    if (!is_before) {
      const std::lock_guard lock{r.mutex};
      r.open.erase(key_of(event));
    }
  }
  if (must_resolve) resolve_pending();
}

/// Reports once that the file cannot be written.
bool report_unwritable(Recording& r) noexcept {
  const char* const reason = std::strerror(errno);
  if (!std::exchange(r.is_unwritable_reported, true))
    std::fprintf(stderr, "runnel: the trace cannot be written to %s: %s\n", r.file.c_str(), reason);
  return false;
}

bool write_now(bool last) noexcept try {
  resolve_pending();
  fetch_activities(last);
  Recording& r = recording();
  const std::lock_guard lock{r.mutex};
  move_activities(r.contents, max_slices);
  const size_t complete = r.contents.slices.size();
  // Unfinished work has no end yet, and its begin may be unknown.
  for (const Interval& each : r.pending) {
    TraceSlice slice = each.slice;
    slice.end = -1;
    r.contents.slices.push_back(slice);
  }
  const bool is_written = write_trace(r.file, r.contents);
  r.contents.slices.resize(complete);
  return is_written || report_unwritable(r);
} catch (const std::bad_alloc&) {
  return false;
}

bool start_trace(const char* file) {
  Recording& r = recording();
  const std::lock_guard starting{r.starting};
  if (has_observers(observer_trace)) return true;
  {
    const std::lock_guard lock{r.mutex};
    r.file = trace_file_name(file);
    if (!can_write(r.file)) return report_unwritable(r);
  }
  trace_now();
  start_activities();
  static constinit ExitHook at_exit{
      []() noexcept { static_cast<void>(Trace::is_on() && write_now(true)); }};
  call_at_exit(at_exit);
  set_observer(observer_trace, true);
  return true;
}

/// Ignored in a program with more privileges than its caller, who chooses the file.
bool is_trace_requested() noexcept try {
  const char* const file = secure_getenv("RUNNEL_TRACE");
  return file != nullptr && *file != '\0' && start_trace(file);
} catch (const std::bad_alloc&) {
  std::fputs("runnel: there was no memory to start the trace\n", stderr);
  return false;
}

/// A range is never a part of another operation.
Operation about_range(const StreamCall& call, const char* name, uint64_t number,
                      HookPhase phase) noexcept {
  Operation range = call.about(OperationKind::range);
  range.name = name;
  range.number = number;
  range.phase = phase;
  return range;
}

}  // namespace

extern const Observer trace_observer;
constinit const Observer trace_observer{observer_trace, is_trace_requested, collect};

}  // namespace detail

using namespace detail;

bool Trace::is_on() noexcept { return has_observers(observer_trace); }

bool Trace::start(const char* file) {
  enter("start the trace");
  return start_trace(file);
}

bool Trace::write() { return is_on() && !is_forked_child() && write_now(false); }

void TraceRange::begin() {
  if (name_ == nullptr) name_ = "";
  const StreamCall call{stream_, "begin a range of the trace"};
  number_ = next_operation_number();
  deliver(about_range(call, name_, number_, HookPhase::before));
}

void TraceRange::end() noexcept try {
  const StreamCall call{stream_, "end a range of the trace"};
  deliver(about_range(call, name_, number_, HookPhase::after));
} catch (...) {  // The stream has ended: the range has no end.
}

}  // namespace runnel::inline RUNNEL_ABI
