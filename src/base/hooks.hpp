// SPDX-License-Identifier: Apache-2.0
/// How the library's own sources tell a hook and the trace what they do. Callers ask is_told() first.
#pragma once

#include "base/pageable_policy.hpp"
#include "base/process.hpp"

#include <runnel/detail/observers.hpp>
#include <runnel/hooks.hpp>

#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// True while the calling thread is in the program's hook.
extern thread_local constinit bool in_hook;

/// While it lives, the calling thread is in a function of the program that must not use the library: operations are refused, and frees
/// wait. What that function sets all the same does not stay with the caller.
class InHook {
 public:
  InHook() noexcept
      : outer_{std::exchange(in_hook, true)}, in_function_{std::exchange(in_host_function, true)}, policy_{policy_of_thread} {}
  InHook(const InHook&) = delete;
  InHook& operator=(const InHook&) = delete;
  ~InHook() {
    policy_of_thread = policy_;
    in_host_function = in_function_;
    in_hook = outer_;
  }

 private:
  bool outer_;
  bool in_function_;
  Pageable policy_;
};

/// Tells of something that has happened, and returns its number. Says nothing, and returns 0, within an operation that is told of itself.
std::uint64_t tell_once(HookEvent event) noexcept;
/// The same without these two rules.
void tell(const HookEvent& event) noexcept;
[[nodiscard]] std::uint64_t next_told_number() noexcept;

/// Sets the trace's own hook, which may use the runtime.
void set_trace_hook(Hook hook) noexcept;
/// RUNNEL_TRACE. Called once, before the runtime is used; src/stream/trace.cpp has it.
void start_demanded_trace() noexcept;

/// An operation that is told of before and after. Until begin() it costs one store.
class ToldOperation {
 public:
  ToldOperation() noexcept : nothing_{} {}
  ToldOperation(const ToldOperation&) = delete;
  ToldOperation& operator=(const ToldOperation&) = delete;
  ~ToldOperation() {
    if (is_begun_) [[unlikely]]
      end();
  }
  void begin(const HookEvent& event) noexcept;
  [[nodiscard]] bool is_begun() const noexcept { return is_begun_; }
  /// What `after` will say. Requires: it has begun.
  [[nodiscard]] HookEvent& event() noexcept { return event_; }
  /// The number, or 0 if this is a part of an operation that is told of. Requires: it has begun.
  [[nodiscard]] std::uint64_t number() const noexcept { return is_part_ ? 0 : event_.number; }

 private:
  void end() noexcept;

  bool is_begun_ = false;
  bool is_part_ = false;
  int exceptions_ = 0;
  union {
    char nothing_;
    HookEvent event_;
  };
};

/// While it lives, nothing is told that the thread does: it is a part of something that is told of at another place.
class Untold {
 public:
  Untold() noexcept;
  Untold(const Untold&) = delete;
  Untold& operator=(const Untold&) = delete;
  ~Untold();
};

/// An allocation outside every stream's order.
class ToldAllocation {
 public:
  ToldAllocation(const char* operation, MemoryKind kind, std::size_t bytes, int device = -1) noexcept {
    if (is_told()) [[unlikely]]
      told_.begin({.kind = HookKind::allocation, .operation = operation, .device = device, .bytes = bytes, .to_kind = kind});
  }
  void made(const void* block) noexcept {
    if (told_.is_begun()) [[unlikely]]
      told_.event().to = block;
  }

 private:
  ToldOperation told_;
};
/// Memory that is given back outside every stream's order. Does nothing while nobody is told.
inline void tell_free_outside(const char* operation, MemoryKind kind, const void* block, std::size_t bytes, int device = -1) noexcept {
  if (is_told())
    tell_once({.kind = HookKind::deallocation, .operation = operation, .device = device, .to = block, .bytes = bytes, .to_kind = kind});
}

}  // namespace runnel::inline RUNNEL_ABI::detail
