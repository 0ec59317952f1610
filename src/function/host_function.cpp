// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/host_function.hpp>

#include "function/host_functions.hpp"

#include "base/batch_cache.hpp"
#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/process.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "device/current_device.hpp"
#include "function/graph_functions.hpp"
#include "slot/capture.hpp"
#include "slot/operations.hpp"
#include "slot/slots.hpp"
#include "slot/stream_call.hpp"

#include <runnel/detail/access.hpp>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

thread_local constinit uint64_t host_function_label = 0;
thread_local constinit uint64_t running_function = 0;

Operation about_run(const HostFunction& function) noexcept {
  return {.kind = OperationKind::host_function_run,
          .name = "run a host function",
          .stream = {static_cast<Slot*>(function.slot), function.id},
          .number = function.operation};
}

InHostFunction::InHostFunction(uint64_t launch) noexcept {
  in_host_function = true;
  running_function = launch;
}

InHostFunction::~InHostFunction() {
  reset_thread_settings();
  running_function = 0;
  in_host_function = false;
}

// No exception may reach the runtime, which calls this.
void call_as(const HostFunction& launched, HostFunction& function, ScopedEvent& event) noexcept {
  try {
    function.run(function);
  } catch (...) {
    if (Operation* const run = event.operation()) run->failed = true;
    keep_failure(launched.slot, launched.id,
                 {std::current_exception(), launched.label, launched.epoch});
  }
}

namespace {

/// Destroys the callable before the stream continues.
void run_and_destroy(OwnedFunction function) noexcept {
  std::optional<CountedCall> counted;
  ScopedEvent event;
  if (function->operation != 0) [[unlikely]] {
    counted.emplace(Count::made_functions);
    event.begin(about_run(*function));
  }
  const InHostFunction within{function->operation};
  call_as(*function, *function, event);
  function.reset();
}

/// Enqueued instead of the function itself if the runtime may drop the call. Either the runtime's
/// call or discard_host_functions() takes the function out and destroys it. Tickets are never
/// freed, so that a late call finds an empty ticket.
struct Ticket : Batched<Ticket, 8> {
  sync::Atomic<HostFunction*> function{nullptr};
  int device = 0;
  Ticket* older = nullptr;
};
using UnusedTickets = BatchCache<Ticket>;
constinit SpinLock tickets_lock;
constinit Ticket* newest_ticket = nullptr;

[[nodiscard]] Ticket* take_ticket() {
  if (Ticket* const unused = UnusedTickets::take()) [[likely]]
    return unused;
  auto* const fresh = new Ticket;
  const std::lock_guard lock{tickets_lock};
  fresh->older = std::exchange(newest_ticket, fresh);
  return fresh;
}

// The runtime calls one of these two.
void run_function(void* data) noexcept {
  run_and_destroy(OwnedFunction{static_cast<HostFunction*>(data)});
}
void run_ticket(void* data) noexcept {
  Ticket* const ticket = static_cast<Ticket*>(data);
  OwnedFunction function{ticket->function.exchange(nullptr, std::memory_order_acq_rel)};
  if (function == nullptr) return;
  UnusedTickets::give(ticket);
  run_and_destroy(std::move(function));
}

/// After an error the caller owns the function again, unless it was discarded meanwhile.
/// @throws std::bad_alloc
[[nodiscard]] backend::status launch_ticket(native::stream stream, int device,
                                            OwnedFunction& function) {
  Ticket* const ticket = take_ticket();
  {
    const std::lock_guard no_discard{tickets_lock};
    ticket->device = device;
    ticket->function.store(function.release(), std::memory_order_release);
  }
  const BlockingEnqueue enqueued;
  const backend::status s = backend::launch_host_func(stream, run_ticket, ticket);
  if (s == backend::ok) [[likely]]
    return s;
  function.reset(ticket->function.exchange(nullptr, std::memory_order_acq_rel));
  if (function != nullptr) UnusedTickets::give(ticket);
  return s;
}

/// As launch_ticket().
[[nodiscard]] backend::status launch_native(native::stream stream, int device,
                                            OwnedFunction& function) {
  if (backend::forgets_host_functions()) return launch_ticket(stream, device, function);
  const BlockingEnqueue enqueued;
  const backend::status s = backend::launch_host_func(stream, run_function, function.get());
  if (s == backend::ok) static_cast<void>(function.release());
  return s;
}

/// Enqueues the function, or adds it as a node to the graph that the stream is being captured into.
void enqueue(const StreamCall& call, OwnedFunction function, bool is_writer) {
  if (is_capturing(call.slot(), call.operation())) [[unlikely]]
    return add_to_capture(call, std::move(function), is_writer);
  if (is_writer) {
    host_writers().begin_functions(1);
    function->is_writer = true;
  }
  call.check(launch_native(call.handle(), call.slot().device, function));
}

}  // namespace

void run_again(void* data) noexcept {
  auto& function = *static_cast<HostFunction*>(data);
  const InHostFunction within{0};
  ScopedEvent unobserved;
  call_as(function, function, unobserved);
}

void launch(StreamSlot* base, uint64_t id, HostFunction* raw, bool writes_host_memory) {
  count_function(Count::made_functions);
  OwnedFunction function{raw};
  const StreamCall call{Access::ref(base, id), "launch a host function"};
  function->slot = base;
  function->id = id;
  function->label = host_function_label;
  function->epoch = call.slot().timeline.epoch();
  ScopedEvent event{[&] { return call.about(OperationKind::host_function); }};
  if (const Operation* const operation = event.operation()) [[unlikely]]
    function->operation = operation->number;
  enqueue(call, std::move(function), writes_host_memory);
}

void discard_host_functions(int device) noexcept {
  Ticket* ticket = nullptr;
  {
    const std::lock_guard lock{tickets_lock};
    ticket = newest_ticket;
  }
  // A ticket that is emptied here is not reused: the runtime may still call with it.
  for (; ticket != nullptr; ticket = ticket->older) {
    OwnedFunction discarded;  // destroyed outside the lock
    const std::lock_guard no_reuse{tickets_lock};
    if (ticket->device == device)
      discarded = OwnedFunction{ticket->function.exchange(nullptr, std::memory_order_acq_rel)};
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
