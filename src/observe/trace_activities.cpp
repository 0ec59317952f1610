// SPDX-License-Identifier: Apache-2.0
#include "observe/trace_activities.hpp"

#include "backend.hpp"
#include "base/never_destroyed.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "observe/trace_times.hpp"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr size_t max_kept = size_t{1} << 20;

struct TimedWork {
  backend::Activity activity;  // Its name is one of `names`, or null.
  double begin;                // microseconds, on the clock of the trace
  double end;
};

struct Activities {
  sync::Atomic<bool> are_collected{false};
  sync::Mutex starting;
  bool was_started = false;
  std::string source;  // the profiling library, or why there is none
  sync::Mutex mutex;   // protects the rest; no runtime call is made under it
  std::vector<TimedWork> all;
  size_t lost = 0;
  // Maps mangled kernel names to readable ones.
  std::map<std::string, std::string, std::less<>> names;
  // Maps a device and the profiling library's stream number to the stream's id.
  std::map<std::pair<int, uint32_t>, uint64_t> streams;
  // The ids of streams with known numbers.
  std::set<uint64_t> known;
};
Activities& activities() { return never_destroyed<Activities>(); }

// Requires, for the following two functions: the mutex is locked. @throws std::bad_alloc

const char* readable_name(Activities& a, const char* name) {
  if (const auto found = a.names.find(std::string_view{name}); found != a.names.end())
    return found->second.c_str();
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text{
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free};
  return a.names.emplace(name, text != nullptr ? text.get() : name).first->second.c_str();
}

void keep(Activities& a, const backend::Activity& activity, double offset) {
  if (a.all.size() >= max_kept) {
    ++a.lost;
    return;
  }
  const auto time = [&](uint64_t nanoseconds) {
    return static_cast<double>(static_cast<std::int64_t>(nanoseconds)) / 1000 - offset;
  };
  TimedWork work{activity, time(activity.begin), time(activity.end)};
  if (activity.name != nullptr) work.activity.name = readable_name(a, activity.name);
  a.all.push_back(work);
}

/// The offset of the profiling library's clock from the trace's, in microseconds: the closest of
/// some readings. Read again for each delivery, because that clock may be the time of day, which
/// can be set.
[[nodiscard]] bool read_clocks(double& ahead) noexcept {
  double closest = 1e9;
  for (int attempt = 0; attempt < 3; ++attempt) {
    uint64_t there = 0;
    const double before = trace_now();
    if (!backend::activity_time(there)) return false;
    const double apart = trace_now() - before;
    if (apart >= closest) continue;
    closest = apart;
    ahead = static_cast<double>(there) / 1000 - (before + apart / 2);
  }
  return true;
}

/// The callback of the profiling library.
void take_activities(const backend::Activity* list, size_t count, size_t lost) noexcept {
  if (is_forked_child()) return;
  double ahead = 0;
  const bool has_clock = read_clocks(ahead);
  Activities& a = activities();
  const std::lock_guard lock{a.mutex};
  size_t taken = 0;
  try {
    for (; has_clock && taken < count; ++taken) keep(a, list[taken], ahead);
  } catch (const std::bad_alloc&) {  // The others are dropped.
  }
  a.lost += lost + (count - taken);
}

/// For each ActivityKind. The name is that of work without one of its own.
constexpr struct {
  const char* name;
  const char* category;
} kinds[] = {{"kernel", "kernel on the device"},
             {"copy", "copy on the device"},
             {"fill", "fill on the device"}};

/// The row of the work. Adds its name.
/// @throws std::bad_alloc
TraceRow row_of(const Activities& a, TraceContents& contents, const TimedWork& work) {
  const auto found = a.streams.find({work.activity.device, work.activity.stream});
  const bool is_known = found != a.streams.end();
  const TraceRow row{work.activity.device,
                     is_known ? found->second : foreign_stream + work.activity.stream, true};
  std::string name = "another stream (" + std::to_string(work.activity.stream) + ")";
  if (is_known) {
    const auto stream = contents.rows.find({row.device, row.id});
    name = stream != contents.rows.end() ? stream->second : "stream " + std::to_string(row.id);
  }
  contents.rows[row] = name + ", on the device";
  return row;
}

}  // namespace

void start_activities() noexcept try {
  Activities& a = activities();
  const std::lock_guard lock{a.starting};
  if (std::exchange(a.was_started, true)) return;
  const char* const setting = secure_getenv("RUNNEL_TRACE_CUPTI");
  if (setting != nullptr && std::strcmp(setting, "0") == 0) {
    a.source = "not timed: RUNNEL_TRACE_CUPTI=0";
    return;
  }
  if (setting != nullptr && *setting != '\0' && std::strcmp(setting, "1") != 0)
    std::fprintf(
        stderr,
        "runnel: RUNNEL_TRACE_CUPTI=%s is not understood, and does not count: write 0 or 1\n",
        setting);
  char text[256] = "";
  const bool is_on = backend::collect_activities(&take_activities, text, sizeof text);
  if (*text != '\0') a.source = (is_on ? "timed by " : "not timed: ") + std::string{text};
  a.are_collected = is_on;
} catch (const std::bad_alloc&) {  // The work is not collected, or the file does not say how.
}

void note_stream(const HookEvent& event) noexcept try {
  Activities& a = activities();
  if (!a.are_collected) return;
  // The question would break a capture.
  if (event.stream == 0 || event.device < 0 || event.captured ||
      event.kind == HookKind::stream_ended || event.kind == HookKind::host_function_run)
    return;
  {
    const std::lock_guard lock{a.mutex};
    if (a.known.contains(event.stream)) return;
  }
  uint32_t number = 0;
  if (!internal_call(event.device, ScopedDevice::no_throw,
                     [&] { return backend::activity_stream(event.native_stream, number); }))
    return;
  const std::lock_guard lock{a.mutex};
  a.streams[{event.device, number}] = event.stream;
  a.known.insert(event.stream);
} catch (const std::bad_alloc&) {  // The next operation may find memory.
}

void fetch_activities(bool last) noexcept {
  Activities& a = activities();
  if (last ? a.are_collected.exchange(false) : a.are_collected.load())
    backend::deliver_activities(last);
}

void move_activities(TraceContents& contents, size_t max_slices) {
  Activities& a = activities();
  {
    const std::lock_guard lock{a.starting};
    contents.device_work = a.source;
  }
  const std::lock_guard lock{a.mutex};
  contents.dropped += std::exchange(a.lost, 0);
  while (!a.all.empty()) {
    const TimedWork& work = a.all.back();
    const auto& kind = kinds[static_cast<size_t>(work.activity.kind)];
    if (contents.slices.size() < max_slices)
      contents.slices.push_back(
          {.name = work.activity.name != nullptr ? work.activity.name : kind.name,
           .category = kind.category,
           .failed = false,
           .row = row_of(a, contents, work),
           .begin = work.begin,
           .end = work.end,
           .number = 0,
           .stream = 0,
           .other = 0,
           .bytes = work.activity.bytes});
    else
      ++contents.dropped;
    a.all.pop_back();
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
