// SPDX-License-Identifier: Apache-2.0
#include <runnel/race_checker.hpp>

#include "base/in_hook.hpp"
#include "base/never_destroyed.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "checker/hooks.hpp"
#include "checker/ranges.hpp"
#include "checker/report.hpp"

#include <runnel/detail/backend.hpp>
#include <runnel/detail/observers.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace checker {

thread_local constinit std::uint64_t host_function = 0;

namespace {

constexpr std::size_t max_texts = 100;  // Further reports are only counted.
constexpr std::size_t max_rows = 4096;  // of a pitched copy; further rows are not checked

struct CheckerState {
  sync::Mutex mutex;
  Order order;
  Ranges ranges;
  std::size_t until_forget = 256;  // the number of operations until forget_some() runs
  std::set<std::tuple<Fault, StackId, StackId>> reported;
  RaceChecker::Handler handler = nullptr;
  void* handler_data = nullptr;
  bool has_forgotten = false;
};
CheckerState& state() { return detail::never_destroyed<CheckerState>(); }
constinit sync::Atomic<std::size_t> report_count{0};

[[nodiscard]] std::uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// The finding of one operation. Only the first one is kept.
struct FirstFinding {
  bool any = false;
  Finding finding{};
  void add(const Finding& next) {
    if (!std::exchange(any, true)) finding = next;
  }
};

void deliver(const std::string& text) noexcept {
  RaceChecker::Handler handler = nullptr;
  void* data = nullptr;
  {
    const std::lock_guard lock{state().mutex};
    handler = state().handler;
    data = state().handler_data;
  }
  if (handler != nullptr) {
    const detail::InHook within;
    handler(text.c_str(), data);
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  const char* const setting = std::getenv("RUNNEL_CHECK");
  if (setting != nullptr && std::strcmp(setting, "abort") == 0) std::abort();
}

/// The text of a finding that was not reported before; else "". Requires: the lock is held.
[[nodiscard]] std::string report(CheckerState& s, const Finding& f) {
  if (!s.reported.emplace(f.fault, f.earlier.stack, f.later_stack).second) return {};
  report_count.fetch_add(1, std::memory_order_relaxed);
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
[[nodiscard]] StackId stack_here() noexcept try {
  return capture_stack();
} catch (const std::bad_alloc&) {
  return no_stack;
}

/// Calls `f(state)`, which returns a finding, under the lock, and reports the finding.
template <class F>
void with_state(F f) noexcept try {
  CheckerState& s = state();
  std::string text;
  {
    const std::lock_guard lock{s.mutex};
    if (!detail::is_checking()) return;
    const FirstFinding found = f(s);
    if (!found.any) return;
    text = report(s, found.finding);
  }
  if (!text.empty()) deliver(text);
} catch (const std::bad_alloc&) {
  forget_all();
}

/// For hooks without findings.
template <class F>
void change_state(F f) noexcept try {
  CheckerState& s = state();
  const std::lock_guard lock{s.mutex};
  if (detail::is_checking()) f(s);
} catch (const std::bad_alloc&) {
  forget_all();
}

/// Forgets complete operations, now and then.
void forget_some(CheckerState& s) {
  if (--s.until_forget > 0) return;
  s.ranges.forget([&](const Use& use) { return s.order.is_complete(use.epoch); });
  s.order.forget_complete();
  // Amortized: forgetting costs little per operation.
  s.until_forget = std::max<std::size_t>(256, s.ranges.size() + s.order.size());
}

/// An operation that uses memory, of a stream or of the host.
struct CheckedOperation {
  std::optional<std::uint32_t> stream;
  Use use;
  // Uses of operations that were submitted after it may have been noted already.
  bool is_running_function = false;

  [[nodiscard]] bool is_after(const Use& noted, const Order& order) const {
    return stream ? order.is_before(noted.epoch, *stream) : order.is_complete(noted.epoch);
  }
  [[nodiscard]] bool is_before(const Use& noted, const Order& order) const {
    return is_running_function && order.is_awaited(use.epoch, noted.epoch);
  }
  [[nodiscard]] bool is_ordered(const Use& noted, const Order& order) const {
    return is_after(noted, order) || is_before(noted, order);
  }
};

/// The number of a stream that receives an operation. Its work is then no longer known to be
/// complete. Requires: the lock is held.
[[nodiscard]] std::uint32_t number_of(CheckerState& s, const StreamInfo& stream) {
  stream.known_complete->store(0, std::memory_order_relaxed);
  return s.order.number_of(stream);
}

[[nodiscard]] CheckedOperation begin(CheckerState& s, const StreamInfo& stream, const char* name,
                                     StackId stack) {
  const std::uint32_t number = number_of(s, stream);
  return {number, {s.order.begin(number), name, stack}};
}

constexpr const char* allocating = "allocate device memory";

[[nodiscard]] Fault fault_of(const CheckedOperation& operation, const Use& earlier) noexcept {
  if (!operation.stream) return Fault::host_too_early;
  return earlier.operation == allocating ? Fault::allocated_later : Fault::unordered;
}

class Visit {
 public:
  Visit(CheckerState& s, const CheckedOperation& operation, FirstFinding& found) noexcept
      : state_{s}, operation_{operation}, found_{found} {}

  void use(const MemoryUse& side) {
    const std::size_t rows = std::min(side.rows.height, max_rows);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::uintptr_t begin = address_of(side.rows.begin) + row * side.rows.pitch;
      state_.ranges.visit(begin, begin + side.rows.width,
                          [&](std::uintptr_t at, Segment& segment) { use(side, at, segment); });
    }
  }
  /// For a free or an unpin: reports unfinished uses of the bytes.
  template <class F>
  void require_unused(std::uintptr_t begin, std::uintptr_t end, Fault fault, F is_done) {
    state_.ranges.visit(begin, end, [&](std::uintptr_t at, Segment& segment) {
      if (segment.last == Segment::Last::written && !is_done(segment.write))
        add(fault, segment.write, MemoryAccess::write, MemoryAccess::write, at, segment);
      for (const Use& read : segment.reads)
        if (!is_done(read)) add(fault, read, MemoryAccess::read, MemoryAccess::write, at, segment);
    });
  }

 private:
  void add(Fault fault, const Use& earlier, MemoryAccess earlier_access, MemoryAccess later_access,
           std::uintptr_t at, const Segment& segment) {
    found_.add({fault, earlier, earlier_access, operation_.stream, later_access,
                operation_.use.operation, operation_.use.stack, at, segment.end});
  }

  void use(const MemoryUse& side, std::uintptr_t at, Segment& segment) {
    if (segment.last == Segment::Last::freed) return use_freed(side, at, segment);
    if (segment.last == Segment::Last::written &&
        !operation_.is_ordered(segment.write, state_.order))
      add(fault_of(operation_, segment.write), segment.write, MemoryAccess::write, side.access, at,
          segment);
    if (side.access == MemoryAccess::write)
      for (const Use& read : segment.reads)
        if (!operation_.is_ordered(read, state_.order))
          add(fault_of(operation_, read), read, MemoryAccess::read, side.access, at, segment);
    if (operation_.stream && !side.is_done) note(side.access, segment);
  }

  /// The addresses may have been reused by an allocation that the checker has not seen.
  void use_freed(const MemoryUse& side, std::uintptr_t at, Segment& segment) {
    // The memory may have been freed behind the function, which is then allowed.
    if (operation_.is_running_function) return;
    PointerInfo info{MemoryKind::pageable, Device{0}};
    const bool is_known = side.kind && *side.kind != MemoryKind::pageable;
    if (!is_known &&
        (backend::pointer_info(info, reinterpret_cast<const void*>(at)) != backend::ok ||
         info.kind == MemoryKind::pageable)) {
      segment.last = Segment::Last::none;
      if (operation_.stream && !side.is_done) note(side.access, segment);
      return;
    }
    add(Fault::used_after_free, segment.write, MemoryAccess::write, side.access, at, segment);
  }

  void note(MemoryAccess access, Segment& segment) {
    const auto is_later = [&](const Use& noted) {
      return operation_.is_before(noted, state_.order);
    };
    if (segment.last == Segment::Last::written && is_later(segment.write)) return;
    if (access == MemoryAccess::write) {
      segment.last = Segment::Last::written;
      segment.write = operation_.use;
      std::erase_if(segment.reads, std::not_fn(is_later));
      return;
    }
    for (Use& read : segment.reads)
      if (read.epoch.stream == operation_.use.epoch.stream) {
        if (!is_later(read)) read = operation_.use;
        return;
      }
    segment.reads.push_back(operation_.use);
  }

  CheckerState& state_;
  const CheckedOperation& operation_;
  FirstFinding& found_;
};

void mark_freed(CheckerState& s, const Use& use, std::uintptr_t begin, std::uintptr_t end) {
  s.ranges.erase(begin, end);
  s.ranges.visit(begin, end, [&](std::uintptr_t, Segment& segment) {
    segment.last = Segment::Last::freed;
    segment.write = use;
  });
}

}  // namespace

void uses_memory(const StreamInfo& stream, const char* operation,
                 std::span<const MemoryUse> uses) noexcept {
  const StackId stack = stack_here();
  with_state([&](CheckerState& s) {
    FirstFinding found;
    const CheckedOperation use = begin(s, stream, operation, stack);
    for (const MemoryUse& side : uses) Visit{s, use, found}.use(side);
    forget_some(s);
    return found;
  });
}

void uses_memory_at_once(const StreamInfo& stream, const char* operation,
                         std::vector<Access> accesses) noexcept {
  const StackId stack = stack_here();
  with_state([&](CheckerState& s) {
    FirstFinding found;
    const std::optional<Conflict> conflict = find_conflict(std::move(accesses));
    if (!conflict) return found;
    const auto& [first, second] = *conflict;
    const std::uint32_t number = number_of(s, stream);
    found.add({Fault::within_batch,
               {{number, 0}, operation, stack},
               first.access,
               number,
               second.access,
               operation,
               stack,
               std::max(first.begin, second.begin),
               std::min(first.end, second.end),
               std::array{first.operation, second.operation}});
    return found;
  });
}

void submits_work(const StreamInfo& stream) noexcept {
  change_state([&](CheckerState& s) { s.order.begin(number_of(s, stream)); });
}
void submits_function(const StreamInfo& stream, std::uint64_t operation) noexcept {
  change_state([&](CheckerState& s) { s.order.begin_function(number_of(s, stream), operation); });
}
void ends_function(std::uint64_t operation) noexcept {
  change_state([&](CheckerState& s) { s.order.end_function(operation); });
}
void records_event(const StreamInfo& stream, native::event event) noexcept {
  change_state([&](CheckerState& s) { s.order.record(event, number_of(s, stream)); });
}
void adopts_event(native::event event) noexcept {
  change_state([&](CheckerState& s) { s.order.forget(event); });
}
void waits_for_event(const StreamInfo& stream, native::event event) noexcept {
  change_state([&](CheckerState& s) { s.order.wait_for_event(number_of(s, stream), event); });
}
void waits_for_stream(const StreamInfo& waiting, const StreamInfo& awaited) noexcept {
  change_state([&](CheckerState& s) {
    const std::uint32_t number = number_of(s, waiting);
    s.order.wait_for_stream(number, number_of(s, awaited));
  });
}
void releases_stream(std::uint64_t id, native::stream handle) noexcept {
  change_state([&](CheckerState& s) { s.order.release_stream(id, handle); });
}
void ends_stream(std::uint64_t id) noexcept {
  change_state([&](CheckerState& s) { s.order.end_stream(id); });
}

void host_waited_for_stream(const StreamInfo& stream) noexcept {
  change_state([&](CheckerState& s) {
    s.order.complete_stream(number_of(s, stream));
    // Not for a blocking stream: it also waits for later work of the default stream, and that work
    // resets only the default stream's value.
    if (!stream.blocking) stream.known_complete->store(stream.id, std::memory_order_relaxed);
  });
}
void host_waited_for_event(native::event event) noexcept {
  change_state([&](CheckerState& s) { s.order.complete_event(event); });
}
void host_waited_for_device(int device) noexcept {
  change_state([&](CheckerState& s) { s.order.complete_device(device); });
}

void allocates(const void* pointer, std::size_t bytes) noexcept {
  change_state(
      [&](CheckerState& s) { s.ranges.erase(address_of(pointer), address_of(pointer) + bytes); });
}

void allocates_in_order(const StreamInfo& stream, const void* pointer, std::size_t bytes) noexcept {
  const StackId stack = stack_here();
  with_state([&](CheckerState& s) {
    FirstFinding found;
    s.ranges.erase(address_of(pointer), address_of(pointer) + bytes);
    const CheckedOperation use = begin(s, stream, allocating, stack);
    Visit{s, use, found}.use(
        {MemoryAccess::write, {pointer, bytes, bytes, 1}, MemoryKind::device, false});
    forget_some(s);
    return found;
  });
}

void frees_in_order(const StreamInfo& owner, std::span<const StreamInfo> others,
                    const void* pointer, std::size_t bytes) noexcept {
  const StackId stack = stack_here();
  with_state([&](CheckerState& s) {
    FirstFinding found;
    std::vector<std::uint32_t> awaited{number_of(s, owner)};
    for (const StreamInfo& other : others) awaited.push_back(number_of(s, other));
    const auto is_done = [&](const Use& use) {
      return std::any_of(awaited.begin(), awaited.end(),
                         [&](std::uint32_t each) { return s.order.is_before(use.epoch, each); });
    };
    const CheckedOperation use = begin(s, owner, "free device memory", stack);
    const std::uintptr_t begin = address_of(pointer);
    Visit{s, use, found}.require_unused(begin, begin + bytes, Fault::freed_too_early, is_done);
    mark_freed(s, use.use, begin, begin + bytes);
    forget_some(s);
    return found;
  });
}

void frees(const void* pointer, std::size_t bytes) noexcept {
  const StackId stack = stack_here();
  change_state([&](CheckerState& s) {
    mark_freed(s, {{}, "free pinned or managed memory", stack}, address_of(pointer),
               address_of(pointer) + bytes);
    forget_some(s);
  });
}

void pins(const void* pointer, std::size_t bytes) noexcept {
  change_state([&](CheckerState& s) {
    s.ranges.visit(address_of(pointer), address_of(pointer) + bytes,
                   [](std::uintptr_t, Segment& segment) {
                     if (segment.last == Segment::Last::freed) segment.last = Segment::Last::none;
                   });
  });
}

void unpins(const void* pointer, std::size_t bytes) noexcept {
  const StackId stack = stack_here();
  with_state([&](CheckerState& s) {
    FirstFinding found;
    const CheckedOperation use{std::nullopt, {{}, "unpin memory", stack}};
    const auto is_done = [&](const Use& earlier) { return s.order.is_complete(earlier.epoch); };
    const std::uintptr_t begin = address_of(pointer);
    Visit{s, use, found}.require_unused(begin, begin + bytes, Fault::unpinned_in_flight, is_done);
    return found;
  });
}

namespace {

void host_uses(const char* operation, MemoryAccess access, const void* pointer,
               std::size_t bytes) noexcept {
  const StackId stack = stack_here();
  with_state([&](CheckerState& s) {
    FirstFinding found;
    CheckedOperation use{std::nullopt, {{}, operation, stack}};
    if (detail::in_host_function) {
      const std::optional<Epoch> function = s.order.find_function(host_function);
      if (!function) return found;
      use = {function->stream, {*function, operation, stack}, true};
    }
    Visit{s, use, found}.use({access, {pointer, bytes, bytes, 1}, std::nullopt, false});
    return found;
  });
}

}  // namespace
}  // namespace checker

void RaceChecker::start() { detail::set_observer(detail::observer_checker, true); }

void RaceChecker::stop() {
  checker::CheckerState& s = checker::state();
  const std::lock_guard lock{s.mutex};
  detail::set_observer(detail::observer_checker, false);
  s.ranges.clear();
  s.order = {};
  s.reported.clear();
}

std::size_t RaceChecker::reports() noexcept {
  return checker::report_count.load(std::memory_order_relaxed);
}

void RaceChecker::set_handler(Handler handler, void* data) {
  const std::lock_guard lock{checker::state().mutex};
  checker::state().handler = handler;
  checker::state().handler_data = data;
}

void RaceChecker::host_reads(const void* pointer, std::size_t bytes) {
  if (is_on()) checker::host_uses("the host", detail::MemoryAccess::read, pointer, bytes);
}
void RaceChecker::host_writes(const void* pointer, std::size_t bytes) {
  if (is_on()) checker::host_uses("the host", detail::MemoryAccess::write, pointer, bytes);
}

}  // namespace runnel::inline RUNNEL_ABI
