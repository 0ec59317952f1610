// SPDX-License-Identifier: Apache-2.0
// Passes operations to the race checker. Captured work is ignored, because it does not run yet.
#include "base/operation.hpp"
#include "checker/hooks.hpp"
#include "stream/capture.hpp"
#include "stream/stream_call.hpp"
#include "stream/stream_point.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/race_checker.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

[[nodiscard]] checker::StreamInfo info_of(StreamKey stream) noexcept {
  const Slot& slot = *stream.slot;
  return {.id = stream.id,
          .handle = slot.handle,
          .device = slot.device,
          .owned = slot.owned,
          .blocking = blocking_of(slot) != Blocking::no,
          .is_legacy_default = is_legacy_default(slot),
          .is_default = slot.is_default,
          .name = slot.name,
          .known_complete = &slot.known_complete};
}
[[nodiscard]] checker::StreamInfo info_of(const StreamCall& call) noexcept {
  return info_of(key_of(call.slot()));
}

/// Each operation of a batch gets its own index, because the operations have no order.
void batch(const Operation& operation) noexcept try {
  std::vector<checker::Access> accesses;
  accesses.reserve(operation.unordered.size());
  for (std::size_t i = 0; i < operation.unordered.size(); ++i) {
    const MemoryUse& use = operation.unordered[i];
    if (use.rows.width == 0) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(use.rows.begin);
    accesses.push_back({address, address + use.rows.width, use.access, i / 2});
  }
  checker::uses_memory_at_once(info_of(operation.stream), operation.name, std::move(accesses));
} catch (const std::bad_alloc&) {  // The batch is not checked.
}

void copy_or_fill(const Operation& operation) noexcept {
  if (operation.use_count != 0)
    checker::uses_memory(info_of(operation.stream), operation.name,
                         std::span{operation.uses}.first(operation.use_count));
  if (!operation.unordered.empty()) batch(operation);
}

void allocation(const Operation& operation) noexcept {
  if (operation.to == nullptr) return;
  if (operation.is_of_program && operation.stream.slot == nullptr)
    checker::pins(operation.to, operation.bytes);
  else if (operation.stream.slot != nullptr && !operation.captured)
    checker::allocates_in_order(info_of(operation.stream), operation.to, operation.bytes);
  else  // memory of a capture is used when the graph runs, which the checker does not see
    checker::allocates(operation.to, operation.bytes);
}

void free_in_order(const Operation& operation) noexcept try {
  std::vector<checker::StreamInfo> awaited;
  for (const StreamPoint& user : *operation.users) awaited.push_back(info_of(user.stream()));
  checker::frees_in_order(info_of(operation.stream), awaited, operation.to, operation.bytes);
  // The owner may now use it for something else.
  if (operation.is_of_program) checker::allocates(operation.to, operation.bytes);
} catch (const std::bad_alloc&) {
  checker::allocates(operation.to, operation.bytes);  // forgets the block
}

void deallocation(const Operation& operation) noexcept {
  if (operation.stream.slot != nullptr)
    free_in_order(operation);
  else if (operation.is_of_program)
    checker::unpins(operation.to, operation.bytes);
  else
    checker::frees(operation.to, operation.bytes);
}

/// Looked at before the launch, because the function may run before the launch returns.
void host_function(const Operation& operation) noexcept {
  if (operation.phase != HookPhase::before || operation.captured) return;
  if (operation.number == 0) return checker::submits_work(info_of(operation.stream));
  checker::submits_function(info_of(operation.stream), operation.number);
}

/// Takes no lock for a stream that the checker already knows to be complete.
void known_complete(const Operation& operation) noexcept {
  if (operation.event != nullptr) return checker::host_waited_for_event(operation.event);
  if (operation.stream.slot == nullptr) return checker::host_waited_for_device(operation.device);
  const checker::StreamInfo stream = info_of(operation.stream);
  if (stream.known_complete->load(std::memory_order_relaxed) != stream.id)
    checker::host_waited_for_stream(stream);
}

/// RUNNEL_CHECK=1 or RUNNEL_CHECK=abort. Ignored in a program with more privileges than its caller,
/// because the checker runs addr2line from PATH.
[[nodiscard]] bool is_check_requested() noexcept {
  const char* const setting = secure_getenv("RUNNEL_CHECK");
  if (setting == nullptr || *setting == '\0' || std::strcmp(setting, "0") == 0) return false;
  if (std::strcmp(setting, "1") == 0 || std::strcmp(setting, "abort") == 0) return true;
  std::fprintf(
      stderr,
      "runnel: RUNNEL_CHECK=%s is not understood, and the checker stays off: write 1 or abort\n",
      setting);
  return false;
}

}  // namespace

/// Not in the unnamed namespace: reports omit the frames of functions whose names begin with
/// runnel::.
void check_operation(const Operation& operation) noexcept;
void check_operation(const Operation& operation) noexcept {
  if (operation.kind == OperationKind::host_function) return host_function(operation);
  if (operation.phase == HookPhase::before) return;
  if (operation.kind == OperationKind::host_function_run)
    return checker::ends_function(operation.number);
  if (operation.failed) return;
  if (operation.kind == OperationKind::allocation) return allocation(operation);
  if (operation.captured) return;
  switch (operation.kind) {
    case OperationKind::copy:
    case OperationKind::fill:
      return copy_or_fill(operation);
    case OperationKind::graph_launch:
    case OperationKind::value_written:
      return checker::submits_work(info_of(operation.stream));
    case OperationKind::event_recorded:
      return checker::records_event(info_of(operation.stream), operation.event);
    case OperationKind::event_adopted:
      return checker::adopts_event(operation.event);
    case OperationKind::event_waited:
    case OperationKind::stream_waited:
    // The writer of the value is unknown, so the wait counts as one for all work submitted so far.
    case OperationKind::value_awaited:
      return checker::waits_for_event(info_of(operation.stream), operation.event);
    case OperationKind::stream_released:
      return checker::releases_stream(operation.stream.id, operation.stream.slot->handle);
    case OperationKind::stream_ended:
      return checker::ends_stream(operation.stream.id);
    case OperationKind::known_complete:
      return known_complete(operation);
    case OperationKind::deallocation:
      return deallocation(operation);
    default:
      return;
  }
}

extern const Observer race_checker_observer;
constinit const Observer race_checker_observer{observer_checker, is_check_requested,
                                               check_operation};

void declare_access(StreamSlot* slot, std::uint64_t id, MemoryAccess access, const void* pointer,
                    std::size_t bytes, const MemoryKind* kind) {
  const StreamCall call{Access::ref(slot, id), "declare an access"};
  if (bytes == 0 || !is_checking() || capture_state(call.handle()) != CaptureState::none) return;
  const std::array side{MemoryUse{access,
                                  {pointer, bytes, bytes, 1},
                                  kind != nullptr ? std::optional{*kind} : std::nullopt,
                                  false}};
  checker::uses_memory(info_of(call), "declared work", side);
}

}  // namespace detail

void RaceChecker::assume_complete(StreamRef stream) {
  if (is_on())
    detail::emit_complete(detail::StreamCall{stream, "declare a stream complete"}.slot());
}

void RaceChecker::assume_wait(StreamRef waiting, StreamRef awaited) {
  if (!is_on()) return;
  constexpr const char* operation = "declare a wait";
  const detail::StreamCall later{waiting, operation};
  const detail::StreamCall earlier{awaited, operation};
  checker::waits_for_stream(detail::info_of(later), detail::info_of(earlier));
}

}  // namespace runnel::inline RUNNEL_ABI
