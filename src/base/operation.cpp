// SPDX-License-Identifier: Apache-2.0
#include "base/operation.hpp"

#include "base/process.hpp"
#include "base/sync.hpp"

#include <new>

namespace runnel::inline RUNNEL_ABI::detail {

constinit Atomic<unsigned> observers{0};

namespace {

constinit sync::Atomic<uint64_t> last_number{0};
thread_local constinit int depth = 0;  // of nested emitted operations

void fan_out(const Operation& operation) noexcept {
  for (const Observer* const each : all_observers())
    if (has_observers(each->bit)) each->observe(operation);
}

/// A destructor that runs in a hook is a part of the operation that the hook observes.
void number(Operation& operation) noexcept {
  operation.is_part = operation.is_part || in_hook || (depth > 0 && operation.number == 0);
  if (!operation.is_part && operation.number == 0) operation.number = next_operation_number();
}

}  // namespace

void start_observers() noexcept {
  for (const Observer* const each : all_observers())
    if (each->is_requested != nullptr && each->is_requested()) set_observer(each->bit, true);
}

uint64_t next_operation_number() noexcept { return ++last_number; }

void deliver(Operation operation) noexcept {
  number(operation);
  fan_out(operation);
}

void ScopedEvent::begin(const Operation& operation) noexcept {
  is_begun_ = true;
  exceptions_ = std::uncaught_exceptions();
  new (&operation_) Operation{operation};
  operation_.phase = HookPhase::before;
  number(operation_);
  ++depth;
  fan_out(operation_);
}

void ScopedEvent::end() noexcept {
  --depth;
  operation_.phase = HookPhase::after;
  operation_.failed = operation_.failed || std::uncaught_exceptions() > exceptions_;
  fan_out(operation_);
}

SuppressEvents::SuppressEvents() noexcept { ++depth; }
SuppressEvents::~SuppressEvents() { --depth; }

}  // namespace runnel::inline RUNNEL_ABI::detail
