// SPDX-License-Identifier: Apache-2.0
// The race checker: what it learns from operations. Captured work is ignored, because it does not
// run yet. Without memory the checker forgets all earlier uses.
#include <runnel/race_checker.hpp>

#include "base/in_hook.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "checker/conflict.hpp"
#include "checker/visit.hpp"
#include "function/host_functions.hpp"
#include "slot/capture.hpp"
#include "slot/point.hpp"
#include "slot/stream_call.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/detail/checking.hpp>
#include <runnel/detail/observers.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace checker {
namespace {

constexpr size_t max_texts = 100;  // Further reports are only counted.

struct CheckerState : History {
  sync::Mutex mutex;
  size_t until_forget = 256;  // the number of operations until forget_some() runs
  std::set<std::tuple<Fault, StackId, StackId>> reported;
  RaceChecker::Handler handler = nullptr;
  void* handler_data = nullptr;
  bool has_forgotten = false;
};
CheckerState& state() { return never_destroyed<CheckerState>(); }
constinit sync::Atomic<size_t> report_count{0};

void deliver(const std::string& text) noexcept {
  RaceChecker::Handler handler = nullptr;
  void* data = nullptr;
  {
    const std::lock_guard lock{state().mutex};
    handler = state().handler;
    data = state().handler_data;
  }
  if (handler != nullptr) {
    const InHook within;
    handler(text.c_str(), data);
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  const char* const setting = std::getenv("RUNNEL_CHECK");
  if (setting != nullptr && std::strcmp(setting, "abort") == 0) std::abort();
}

/// Returns the text of a new finding, or "" if it was reported before. Requires: the caller holds
/// the lock of the state.
[[nodiscard]] std::string report(CheckerState& s, const Finding& f) {
  if (!s.reported.emplace(f.fault, f.earlier.stack, f.later.stack).second) return {};
  ++report_count;
  return s.reported.size() <= max_texts ? text_of(f, s.order) : std::string{};
}

/// Called after std::bad_alloc. A wait may have been missed, so all earlier uses are forgotten.
void forget_all() noexcept {
  const std::lock_guard lock{state().mutex};
  state().ranges.clear();
  if (!std::exchange(state().has_forgotten, true))
    std::fputs(
        "runnel: the checker had no memory, and has forgotten what was submitted until now\n",
        stderr);
}

/// The stack at a hook. Each hook calls this itself, so that the stack begins with a named
/// function.
StackId stack_here() noexcept try { return capture_stack(); } catch (const std::bad_alloc&) {
  return no_stack;
}

/// Calls `f(state)` under the lock, and reports what it has found.
template <class F>
void with_state(F f) noexcept try {
  CheckerState& s = state();
  std::string text;
  {
    const std::lock_guard lock{s.mutex};
    if (!is_checking()) return;
    s.found.reset();
    f(s);
    if (s.found) text = report(s, *s.found);
  }
  if (!text.empty()) deliver(text);
} catch (const std::bad_alloc&) {
  forget_all();
}

/// Forgets complete operations, now and then.
void forget_some(CheckerState& s) {
  if (--s.until_forget > 0) return;
  s.ranges.forget([&](const Use& use) { return s.order.is_complete(use.epoch); });
  s.order.forget_complete();
  // Amortized: forgetting costs little per operation.
  s.until_forget = std::max<size_t>(256, s.ranges.size() + s.order.size());
}

/// The number of a stream that receives an operation. Its work is then no longer known to be
/// complete. Requires: the caller holds the lock of the state.
uint32_t number_of(CheckerState& s, StreamKey stream) {
  const Slot& slot = *stream.slot;
  slot.known_complete = 0;
  return s.order.number_of({.id = stream.id,
                            .slot = &slot,
                            .blocking = blocking_of(slot) != Blocking::no,
                            .is_legacy_default = is_legacy_default(slot)});
}

[[nodiscard]] CheckedOperation begin(CheckerState& s, StreamKey stream, const char* name,
                                     StackId stack) {
  const uint32_t number = number_of(s, stream);
  return {number, {s.order.begin(number), name, stack}};
}

void mark_freed(CheckerState& s, const Use& use, uintptr_t begin, uintptr_t end) {
  s.ranges.erase(begin, end);
  s.ranges.visit(begin, end, [&](uintptr_t, Segment& segment) {
    segment.last = Segment::Last::freed;
    segment.write = use;
  });
}

/// Looked at before the launch, because the function may run before the launch returns.
void host_function(const Operation& operation) noexcept {
  if (operation.phase != HookPhase::before || operation.captured) return;
  with_state([&](CheckerState& s) {
    const uint32_t number = number_of(s, operation.stream);
    if (operation.number == 0)
      s.order.begin(number);
    else
      s.order.begin_function(number, operation.number);
  });
}

/// Takes no lock for a stream that the checker already knows to be complete.
void known_complete(const Operation& operation) noexcept {
  if (operation.event != nullptr)
    return with_state([&](CheckerState& s) { s.order.complete_event(operation.event); });
  if (operation.stream.slot == nullptr)
    return with_state([&](CheckerState& s) { s.order.complete_device(operation.device); });
  const StreamKey stream = operation.stream;
  if (has_ended(stream))
    return with_state([&](CheckerState& s) {
      if (const auto number = s.order.find(stream.id)) s.order.complete_stream(*number);
    });
  if (stream.slot->known_complete == stream.id) return;
  with_state([&](CheckerState& s) {
    s.order.complete_stream(number_of(s, stream));
    // Not for a blocking stream: it also waits for later work of the default stream, and that work
    // resets only the default stream's value.
    if (blocking_of(*stream.slot) == Blocking::no) stream.slot->known_complete = stream.id;
  });
}

/// Changes of the order without findings.
void order(const Operation& operation) noexcept {
  with_state([&](CheckerState& s) {
    const uint64_t id = operation.stream.id;
    const auto number = [&] { return number_of(s, operation.stream); };
    switch (operation.kind) {
      case OperationKind::graph_launch:
      case OperationKind::value_written:
        s.order.begin(number());
        break;
      case OperationKind::event_recorded:
        s.order.record(operation.event, number());
        break;
      case OperationKind::event_adopted:  // Other code may have recorded the event.
        s.order.forget(operation.event);
        break;
      case OperationKind::stream_waited:
        if (operation.event == nullptr) {  // The awaited stream has ended.
          if (const auto awaited = s.order.find(operation.other_stream))
            s.order.wait_for_stream(number(), *awaited);
          break;
        }
        [[fallthrough]];
      case OperationKind::event_waited:
      // The writer of the value is unknown, so the wait counts as one for all work submitted so
      // far.
      case OperationKind::value_awaited:
        s.order.wait_for_event(number(), operation.event);
        break;
      case OperationKind::stream_released:  // Another wrapper of the handle is the same stream.
        s.order.release_stream(id, operation.stream.slot->handle);
        break;
      case OperationKind::stream_ended:
        s.order.end_stream(id);
        break;
      default:
        break;
    }
  });
}

}  // namespace

/// The functions that walk the stack. They are members, and not in the unnamed namespace: reports
/// omit the frames of functions whose names begin with runnel::.
struct Hooks {
  static void uses_memory(StreamKey stream, const char* operation,
                          std::span<const MemoryUse> uses) noexcept {
    const StackId stack = stack_here();
    with_state([&](CheckerState& s) {
      const CheckedOperation use = begin(s, stream, operation, stack);
      for (const MemoryUse& side : uses) Visit{s, use}.use(side);
      forget_some(s);
    });
  }

  /// The stream has received operations without an order among them. No two of them may use the
  /// same bytes, unless both only read. Each has its own index, and two uses.
  static void batch(const Operation& operation) noexcept {
    const StackId stack = stack_here();
    with_state([&](CheckerState& s) {
      std::vector<Access> accesses;
      accesses.reserve(operation.unordered.size());
      for (size_t i = 0; i < operation.unordered.size(); ++i) {
        const MemoryUse& use = operation.unordered[i];
        const uintptr_t address = address_of(use.rows.begin);
        if (use.rows.width != 0)
          accesses.push_back({address, address + use.rows.width, use.access, i / 2});
      }
      const std::optional<Conflict> conflict = find_conflict(std::move(accesses));
      if (!conflict) return;
      const auto& [first, second] = *conflict;
      const uint32_t number = number_of(s, operation.stream);
      const Use use{{number, 0}, operation.name, stack};
      s.found = {Fault::within_batch,
                 use,
                 first.access,
                 number,
                 use,
                 second.access,
                 std::max(first.begin, second.begin),
                 std::min(first.end, second.end),
                 std::array{first.operation, second.operation}};
    });
  }

  static void allocation(const Operation& operation) noexcept {
    if (operation.to == nullptr) return;
    const StackId stack = stack_here();
    const uintptr_t begin = address_of(operation.to), end = begin + operation.bytes;
    if (operation.is_of_program && operation.stream.slot == nullptr)  // Other code allocated it.
      return with_state([&](CheckerState& s) {
        s.ranges.visit(begin, end, [](uintptr_t, Segment& segment) {
          if (segment.last == Segment::Last::freed) segment.last = Segment::Last::none;
        });
      });
    // Memory of a capture is used when the graph runs, which the checker does not see.
    const bool is_in_order = operation.stream.slot != nullptr && !operation.captured;
    with_state([&](CheckerState& s) {
      s.ranges.erase(begin, end);
      if (!is_in_order) return;
      const CheckedOperation use = checker::begin(s, operation.stream, allocating, stack);
      Visit{s, use}.use({MemoryAccess::write,
                         {operation.to, operation.bytes, operation.bytes, 1},
                         MemoryKind::device,
                         false});
      forget_some(s);
    });
  }

  static void deallocation(const Operation& operation) noexcept {
    const StackId stack = stack_here();
    const uintptr_t begin = address_of(operation.to), end = begin + operation.bytes;
    if (operation.stream.slot == nullptr && !operation.is_of_program)
      return with_state([&](CheckerState& s) {
        mark_freed(s, {{}, "free pinned or managed memory", stack}, begin, end);
        forget_some(s);
      });
    with_state([&](CheckerState& s) {
      if (operation.stream.slot == nullptr) {
        const CheckedOperation use{std::nullopt, {{}, "unpin memory", stack}};
        Visit{s, use}.require_unused(
            begin, end, Fault::unpinned_in_flight,
            [&](const Use& earlier) { return s.order.is_complete(earlier.epoch); });
        return;
      }
      std::vector<uint32_t> awaited{number_of(s, operation.stream)};
      for (const Point& user : *operation.users)
        if (const StreamKey stream = user.stream(); stream.slot != nullptr)
          awaited.push_back(number_of(s, stream));
      const auto is_done = [&](const Use& use) {
        return std::ranges::any_of(
            awaited, [&](uint32_t each) { return s.order.is_before(use.epoch, each); });
      };
      const CheckedOperation use = checker::begin(s, operation.stream, "free device memory", stack);
      Visit{s, use}.require_unused(begin, end, Fault::freed_too_early, is_done);
      mark_freed(s, use.use, begin, end);
      // The owner may now use it for something else.
      if (operation.is_of_program) s.ranges.erase(begin, end);
      forget_some(s);
    });
  }

  static void host_uses(MemoryAccess access, const void* pointer, size_t bytes) noexcept {
    const StackId stack = stack_here();
    with_state([&](CheckerState& s) {
      CheckedOperation use{std::nullopt, {{}, "the host", stack}};
      if (in_host_function) {
        const std::optional<Epoch> function = s.order.find_function(running_function);
        if (!function) return;
        use = {function->stream, {*function, "the host", stack}, true};
      }
      Visit{s, use}.use({access, {pointer, bytes, bytes, 1}, std::nullopt, false});
    });
  }

  static void check_operation(const Operation& operation) noexcept {
    if (operation.kind == OperationKind::host_function) return host_function(operation);
    if (operation.phase == HookPhase::before) return;
    if (operation.kind == OperationKind::host_function_run)
      return with_state([&](CheckerState& s) { s.order.end_function(operation.number); });
    if (operation.failed) return;
    if (operation.kind == OperationKind::allocation) return allocation(operation);
    if (operation.captured) return;
    switch (operation.kind) {
      case OperationKind::copy:
      case OperationKind::fill:
        if (!operation.unordered.empty()) return batch(operation);
        return uses_memory(operation.stream, operation.name, operation.uses);
      case OperationKind::known_complete:
        return known_complete(operation);
      case OperationKind::deallocation:
        return deallocation(operation);
      case OperationKind::stream_made:
      case OperationKind::host_wait:
      case OperationKind::range:
      case OperationKind::lost_exception:
      case OperationKind::entered:
        return;
      default:
        return order(operation);
    }
  }
};

}  // namespace checker

namespace detail {
namespace {

/// RUNNEL_CHECK=1 or RUNNEL_CHECK=abort. Ignored in a program with more privileges than its caller,
/// because the checker runs addr2line from PATH.
bool is_check_requested() noexcept {
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

extern const Observer race_checker_observer;
constinit const Observer race_checker_observer{observer_checker, is_check_requested,
                                               checker::Hooks::check_operation};

void declare_access(StreamSlot* slot, uint64_t id, MemoryAccess access, const void* pointer,
                    size_t bytes, const MemoryKind* kind) {
  const StreamCall call{Access::ref(slot, id), "declare an access"};
  if (bytes == 0 || !is_checking() || capture_state(call.handle()) != CaptureState::none) return;
  const std::array side{MemoryUse{access,
                                  {pointer, bytes, bytes, 1},
                                  kind != nullptr ? std::optional{*kind} : std::nullopt,
                                  false}};
  checker::Hooks::uses_memory(key_of(call.slot()), "declared work", side);
}

}  // namespace detail

using namespace detail;
using namespace checker;

void RaceChecker::start() { set_observer(observer_checker, true); }

void RaceChecker::stop() {
  CheckerState& s = state();
  const std::lock_guard lock{s.mutex};
  set_observer(observer_checker, false);
  s.ranges.clear();
  s.order = {};
  s.reported.clear();
}

size_t RaceChecker::reports() noexcept { return report_count; }

void RaceChecker::set_handler(Handler handler, void* data) {
  const std::lock_guard lock{state().mutex};
  state().handler = handler;
  state().handler_data = data;
}

void RaceChecker::host_reads(const void* pointer, size_t bytes) {
  if (is_on()) Hooks::host_uses(MemoryAccess::read, pointer, bytes);
}
void RaceChecker::host_writes(const void* pointer, size_t bytes) {
  if (is_on()) Hooks::host_uses(MemoryAccess::write, pointer, bytes);
}

void RaceChecker::assume_complete(StreamRef stream) {
  if (is_on()) emit_complete(StreamCall{stream, "declare a stream complete"}.slot());
}

void RaceChecker::assume_wait(StreamRef waiting, StreamRef awaited) {
  if (!is_on()) return;
  constexpr const char* operation = "declare a wait";
  const StreamCall later{waiting, operation};
  const StreamCall earlier{awaited, operation};
  with_state([&](CheckerState& s) {
    const uint32_t number = number_of(s, key_of(later.slot()));
    s.order.wait_for_stream(number, number_of(s, key_of(earlier.slot())));
  });
}

}  // namespace runnel::inline RUNNEL_ABI
