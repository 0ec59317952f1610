// SPDX-License-Identifier: Apache-2.0
// What a report about a wait that lasts long says of the streams.
#include "base/hang_report.hpp"

#include "base/immortal.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "stream/capture.hpp"
#include "stream/enter_stream.hpp"
#include "stream/stream_device.hpp"
#include "stream/stream_point.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr const char* idle = "idle";

/// Requires: the stream does not end meanwhile.
[[nodiscard]] const char* state_of(const Slot& slot) noexcept {
  if (slot.thread != nullptr) return "a thread's default stream, which cannot be asked";
  const RelaxedCapture relaxed{if_captures_met()};
  const ScopedDevice on{slot.device, ScopedDevice::no_throw};
  if (capture_state(slot.handle) != CaptureState::none) return "is being captured";
  const backend::status s = backend::stream_query(slot.handle);
  if (s == backend::ok) return idle;
  backend::forget_error(s);
  return backend::is_not_ready(s) ? "has work" : backend::error_name(s);
}

void write_operation(std::FILE* to, const OperationNotes::Note& note, std::uint64_t id) noexcept {
  const char* const operation = note.operation.load(std::memory_order_acquire);
  if (operation == nullptr || note.stream.load(std::memory_order_relaxed) != id) return;
  const sync::Clock::time_point time{sync::Clock::duration{note.time.load(std::memory_order_relaxed)}};
  std::fprintf(to, "runnel:     %s ago: %s", Age{sync::Clock::now() - time}.text, operation);
  if (const std::uint64_t other = note.other.load(std::memory_order_relaxed))
    std::fprintf(to, " (stream id %llu)", static_cast<unsigned long long>(other));
  std::fputc('\n', to);
}

void write_stream(std::FILE* to, StreamUse use) noexcept try {
  const HeldStream held{use};
  if (!held) return;
  const char* const state = state_of(*use.slot);
  std::fprintf(to, "runnel:   %s: %s\n", describe(use.slot, use.id).c_str(), state);
  if (state == idle) return;
  const OperationNotes& notes = use.slot->notes;
  const std::uint32_t next = notes.next.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < notes.all.size(); ++i) write_operation(to, notes.all[(next + i) % notes.all.size()], use.id);
} catch (const std::exception&) {  // no memory for the name
}

void write_streams(std::FILE* to) noexcept try {
  std::vector<LiveStream> streams = live_streams();
  std::sort(streams.begin(), streams.end(), [](const LiveStream& a, const LiveStream& b) { return a.id < b.id; });
  for (const LiveStream& each : streams) write_stream(to, {each.slot, each.id});
} catch (const std::exception&) {
}

/// Which stream has recorded a native event. Handles are used again, so that there are no more of them than events at one time.
struct Recorders {
  sync::Mutex mutex;
  std::unordered_map<native::event, std::uint64_t> ids;
};

}  // namespace

void note_recorder(native::event event, std::uint64_t id) noexcept try {
  auto& [mutex, ids] = immortal<Recorders>();
  const std::lock_guard lock{mutex};
  ids[event] = id;
} catch (const std::bad_alloc&) {  // the report does not name the stream then
}

std::uint64_t recorder_of(native::event event) noexcept {
  auto& [mutex, ids] = immortal<Recorders>();
  const std::lock_guard lock{mutex};
  const auto found = ids.find(event);
  return found == ids.end() ? 0 : found->second;
}

void note_operation(Slot& slot, const char* operation, std::uint64_t other) noexcept {
  set_stream_report(write_streams);
  const std::size_t place = slot.notes.next.fetch_add(1, std::memory_order_relaxed) % slot.notes.all.size();
  OperationNotes::Note& note = slot.notes.all[place];
  note.stream.store(slot.id.load(std::memory_order_relaxed), std::memory_order_relaxed);
  note.time.store(sync::Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  note.other.store(other, std::memory_order_relaxed);
  note.operation.store(operation, std::memory_order_release);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
