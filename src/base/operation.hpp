// SPDX-License-Identifier: Apache-2.0
/// What the library does, as its observers see it: a hook, the trace, the report of long waits, the
/// race checker. Whoever makes an operation calls emit(), or keeps a ScopedEvent around it. While
/// nobody observes, that costs one load.
#pragma once

#include "base/relaxed_capture.hpp"

#include <runnel/config.hpp>
#include <runnel/detail/observers.hpp>
#include <runnel/detail/stream_slot.hpp>
#include <runnel/hooks.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <optional>
#include <span>

namespace runnel::inline RUNNEL_ABI::detail {

/// The first ones, up to `lost_exception`, are those of HookKind.
enum class OperationKind : unsigned char {
  stream_made,
  stream_ended,
  event_recorded,
  event_waited,
  stream_waited,
  copy,
  fill,
  host_function,
  host_function_run,
  graph_launch,
  allocation,
  deallocation,
  host_wait,
  range,
  lost_exception,
  // Hooks do not see the following ones.
  // an operation on a stream begins; emitted only while `attention` has attention_entered
  entered,
  stream_released,  // its owner gives the stream away
  event_adopted,    // other code may have recorded the event
  value_awaited,    // the stream waits for a number in memory
  value_written,    // the stream writes one
  known_complete,   // the host knows that a stream, an event or a device has done its work
};
static_assert(static_cast<int>(OperationKind::lost_exception) ==
              static_cast<int>(HookKind::lost_exception));

struct OperationStream {
  const StreamSlot* slot = nullptr;
  std::uint64_t id = 0;
};

/// `height` rows of `width` bytes, of which each starts `pitch` bytes after the one before.
struct MemoryRows {
  const void* begin;
  std::size_t pitch;
  std::size_t width;
  std::size_t height;
};

struct MemoryUse {
  MemoryAccess access;
  MemoryRows rows;
  std::optional<MemoryKind> kind;  // where the caller knows it
  bool is_done;                    // the bytes have been read, or written, when the call returns
};

class StreamPoint;  // stream/stream_point.hpp

/// One operation. HookEvent (hooks.hpp) says what most of the members are.
struct Operation {
  OperationKind kind{};
  HookPhase phase = HookPhase::after;
  bool failed = false;
  bool captured = false;
  bool is_part = false;  // of another operation; hooks and the trace do not see it
  // the memory: it is registered, or comes from a resource of the program
  bool is_of_program = false;
  const char* name = "";     // in the words of errors; a literal, except for ranges
  OperationStream stream{};  // without a slot for an awaited one
  std::uint64_t other_stream = 0;
  // emit() sets it, but not for a part. Whoever sets it makes an operation that is never a part
  std::uint64_t number = 0;
  int device = -1;  // that of the stream's slot, if there is one
  native::event event{};
  const void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  std::optional<MemoryKind> to_kind{};
  std::optional<MemoryKind> from_kind{};
  std::array<MemoryUse, 2> uses{};  // what it reads and writes, once that is known
  std::size_t use_count = 0;
  // what the operations of a batch read and write: two uses each
  std::span<const MemoryUse> unordered{};
  const std::list<StreamPoint>* users = nullptr;  // streams besides `stream` that use the memory
  const std::exception_ptr* exception = nullptr;  // of `lost_exception`
};

/// Someone who observes. Each has a file in src/observe/, and a line in meson.build there.
struct Observer {
  unsigned bit;  // in `observers` while it is on
  // by an environment variable, which is read once, before the runtime is used; null: there is none
  bool (*is_demanded)() noexcept;
  void (*observe)(const Operation& operation) noexcept;
};
/// All of them. Meson makes this function, the one link from here to a higher room.
[[nodiscard]] std::span<const Observer* const> all_observers() noexcept;
/// Switches on those that the environment demands.
void start_observers() noexcept;

[[nodiscard]] std::uint64_t next_operation_number() noexcept;
void deliver(Operation operation) noexcept;

/// The slow path of emit(). It is no part of its caller, which needs no registers for it.
template <std::invocable F>
[[gnu::cold, gnu::noinline]] void emit_described(F describe) noexcept {
  deliver(describe());
}
/// Emits the operation that `describe()` returns. A function that is called often captures values.
template <std::invocable F>
void emit(F describe) noexcept {
  if (is_observed()) [[unlikely]]
    emit_described(describe);
}

/// An operation with a begin and an end. Until begin() it costs one store. What else the thread
/// does meanwhile is a part of it.
class ScopedEvent {
 public:
  ScopedEvent() noexcept : nothing_{} {}
  template <std::invocable F>
  explicit ScopedEvent(F describe) : nothing_{} {
    if (is_observed()) [[unlikely]]
      begin_described(describe);
  }
  ScopedEvent(const ScopedEvent&) = delete;
  ScopedEvent& operator=(const ScopedEvent&) = delete;
  ~ScopedEvent() {
    if (is_begun_) [[unlikely]]
      end();
  }
  void begin(const Operation& operation) noexcept;
  /// What the end will say; null if nobody observes.
  [[nodiscard]] Operation* operation() noexcept { return is_begun_ ? &operation_ : nullptr; }
  /// The result of an allocation.
  void allocated(const void* block) noexcept {
    if (is_begun_) [[unlikely]]
      operation_.to = block;
  }

 private:
  template <std::invocable F>
  [[gnu::cold, gnu::noinline]] void begin_described(F describe) {
    begin(describe());
  }
  void end() noexcept;

  bool is_begun_ = false;
  int exceptions_;
  union {
    char nothing_;
    Operation operation_;
  };
};

/// While it lives, what the thread does is a part of an operation that is emitted elsewhere.
class SuppressEvents {
 public:
  SuppressEvents() noexcept;
  SuppressEvents(const SuppressEvents&) = delete;
  SuppressEvents& operator=(const SuppressEvents&) = delete;
  ~SuppressEvents();
};

/// What the host waits for, as far as that is known.
struct Awaited {
  std::uint64_t stream = 0;
  int device = -1;
  native::event event{};
};
/// The host knows that all work of the device is complete.
inline void emit_complete(int device) noexcept {
  emit([&] { return Operation{.kind = OperationKind::known_complete, .device = device}; });
}

/// A wait of the calling thread, which invalidates no capture. Each function that waits has one
/// (tests/analysis/lint/host_waits.py).
class ScopedWait : ScopedEvent {
 public:
  explicit ScopedWait(const char* name, const Awaited& awaited = {}) noexcept
      : ScopedEvent{[&] {
          return Operation{.kind = OperationKind::host_wait,
                           .name = name,
                           .stream = {nullptr, awaited.stream},
                           .device = awaited.device,
                           .event = awaited.event};
        }} {}

 private:
  RelaxedCapture relaxed_{are_captures_open()};
};

/// An allocation outside every stream's order.
[[nodiscard]] inline Operation about_allocation(const char* name, MemoryKind kind,
                                                std::size_t bytes, int device = -1) noexcept {
  return {.kind = OperationKind::allocation,
          .name = name,
          .device = device,
          .bytes = bytes,
          .to_kind = kind};
}
/// Memory that is given back outside every stream's order.
inline void emit_free(const char* name, MemoryKind kind, const void* block, std::size_t bytes,
                      int device = -1) noexcept {
  emit([&] {
    return Operation{.kind = OperationKind::deallocation,
                     .name = name,
                     .device = device,
                     .to = block,
                     .bytes = bytes,
                     .to_kind = kind};
  });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
