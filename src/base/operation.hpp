// SPDX-License-Identifier: Apache-2.0
/// One record for each thing that the library does, for its observers: the hook, the trace, the
/// hang report and the race checker. The code that performs an operation calls emit(), or keeps a
/// ScopedEvent around it. Without observers this costs one load.
#pragma once

#include "base/not_copied.hpp"
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

/// The kinds up to `lost_exception` are those of HookKind.
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
  // Hooks do not see the kinds below.
  // A stream operation begins. Emitted only while slow_path_reasons contains slow_path_observer.
  entered,
  stream_released,  // its owner releases the native stream
  event_adopted,    // Other code may have recorded the event.
  value_awaited,    // The stream waits for a value in memory.
  value_written,    // the stream writes a value
  known_complete,   // The host has learned that work is complete.
};
static_assert(static_cast<int>(OperationKind::lost_exception) ==
              static_cast<int>(HookKind::lost_exception));

struct Slot;  // slot/slots.hpp
/// The identity of a stream: no other stream ever has this id.
struct StreamKey {
  Slot* slot = nullptr;
  uint64_t id = 0;
  friend bool operator==(const StreamKey&, const StreamKey&) noexcept = default;
};

/// `height` rows of `width` bytes. `pitch` is the distance between the starts of two rows.
struct MemoryRows {
  const void* begin;
  size_t pitch;
  size_t width;
  size_t height;
};

struct MemoryUse {
  MemoryAccess access;
  MemoryRows rows;
  std::optional<MemoryKind> kind;  // if the caller knows it
  bool is_done;                    // The bytes have been read or written when the call returns.
};

class Point;  // slot/point.hpp

/// One operation. HookEvent (hooks.hpp) documents most of the members.
struct Operation {
  OperationKind kind{};
  HookPhase phase = HookPhase::after;
  bool failed = false;
  bool captured = false;
  bool is_part = false;  // of another operation: hooks and the trace ignore it
  // The memory was registered, or comes from a resource of the program.
  bool is_of_program = false;
  const char* name = "";  // as in error texts; a literal, except for ranges
  StreamKey stream{};     // without a slot for an awaited stream
  uint64_t other_stream = 0;
  // 0: emit() gives it the next number, unless it is a part. Within another operation, only one
  // that has a number already is no part of that.
  uint64_t number = 0;
  int device = -1;  // of the stream's slot, if there is one
  native::event event{};
  const void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  std::optional<MemoryKind> to_kind{};
  std::optional<MemoryKind> from_kind{};
  std::array<MemoryUse, 2> uses{};  // the memory that it reads and writes, once that is known
  // The uses of the operations of a batch, two for each operation.
  std::span<const MemoryUse> unordered{};
  const std::list<Point>* users = nullptr;        // other streams that use the memory
  const std::exception_ptr* exception = nullptr;  // for `lost_exception`
};

/// An observer. Each one has a file in src/observe/, and a line in meson.build there.
struct Observer {
  unsigned bit;  // in `observers` while it is on
  // Whether an environment variable switches it on. Read once, before the runtime is used. Null: no
  // variable does.
  bool (*is_requested)() noexcept;
  void (*observe)(const Operation& operation) noexcept;
};
/// All observers. Meson generates this function, the only link from here to a higher room.
[[nodiscard]] std::span<const Observer* const> all_observers() noexcept;
/// Switches on the observers that the environment requests.
void start_observers() noexcept;

uint64_t next_operation_number() noexcept;
void deliver(Operation operation) noexcept;

/// The slow path of emit(). Not inlined, so that the caller needs no registers for it.
template <std::invocable F>
[[gnu::cold, gnu::noinline]] void emit_described(F describe) noexcept {
  deliver(describe());
}
/// Emits the operation that `describe()` returns. Functions on a hot path capture by value.
template <std::invocable F>
void emit(F describe) noexcept {
  if (is_observed()) [[unlikely]]
    emit_described(describe);
}

/// An operation with a begin and an end. Before begin() it costs one store. Whatever else the
/// thread does in this scope is a part of the operation.
class ScopedEvent : NotCopied {
 public:
  ScopedEvent() noexcept : nothing_{} {}
  template <std::invocable F>
  explicit ScopedEvent(F describe) : nothing_{} {
    if (is_observed()) [[unlikely]]
      begin_described(describe);
  }
  ~ScopedEvent() {
    if (is_begun_) [[unlikely]]
      end();
  }
  void begin(const Operation& operation) noexcept;
  /// The operation that the end will emit; null without observers.
  Operation* operation() noexcept { return is_begun_ ? &operation_ : nullptr; }
  /// Sets the result of an allocation.
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

/// In this scope, whatever the thread does is a part of an operation that is emitted elsewhere.
class SuppressEvents : NotCopied {
 public:
  SuppressEvents() noexcept;
  ~SuppressEvents();
};

/// What the host waits for, as far as it is known.
struct Awaited {
  uint64_t stream = 0;
  int device = -1;
  native::event event{};
};
/// The host knows that all work of the device is complete.
inline void emit_complete(int device) noexcept {
  emit([&] { return Operation{.kind = OperationKind::known_complete, .device = device}; });
}

/// A wait of the calling thread that invalidates no capture. Each function that waits has one
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
  RelaxedCapture relaxed_{any_capture_seen()};
};

/// An allocation that is not ordered in a stream.
inline Operation about_allocation(const char* name, MemoryKind kind, size_t bytes,
                                  int device = -1) noexcept {
  return {.kind = OperationKind::allocation,
          .name = name,
          .device = device,
          .bytes = bytes,
          .to_kind = kind};
}
/// Emits a free that is not ordered in a stream.
inline void emit_free(const char* name, MemoryKind kind, const void* block, size_t bytes,
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
