// SPDX-License-Identifier: Apache-2.0
/// Where the process and the calling thread stand: may the runtime be called at all?
#pragma once

#include <runnel/native.hpp>

#include <atomic>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// What the next operation must look at before it goes on; 0: nothing.
inline constexpr unsigned attention_phase = 1;    // first use, a forked child, or exit
inline constexpr unsigned attention_backlog = 2;  // something was left to destroy
inline constexpr unsigned attention_forked = 4;   // this is a forked child; set together with the phase's bit
extern constinit std::atomic<unsigned> attention;
/// True on a thread that is inside a host function.
extern thread_local constinit bool in_host_function;

void look_before(const char* operation);

/// Every operation that reaches the runtime begins with this. @throws where the runtime must not be called now
inline void enter(const char* operation) {
  if (attention.load(std::memory_order_relaxed) != 0 || in_host_function) [[unlikely]]
    look_before(operation);
}

/// Whether this is a forked child of a process that had used the runtime. No lock of the library may be taken there: a thread that does
/// not exist in the child may hold it. Destructors look at this; other functions call enter() or refuse_in_child() before any lock.
[[nodiscard]] inline bool is_forked_child() noexcept { return (attention.load(std::memory_order_relaxed) & attention_forked) != 0; }
[[noreturn]] void throw_forked(const char* operation);
/// For functions that take a lock but do not reach the runtime. @throws errc::forked
inline void refuse_in_child(const char* operation) {
  if (is_forked_child()) [[unlikely]]
    throw_forked(operation);
}

/// What a destructor does about the runtime.
enum class Release { now, later, never };
/// `later`: inside a host function, where nothing may be called. `never`: in a forked child, while exiting, before first use.
[[nodiscard]] Release release_mode() noexcept;

/// A native object whose destruction may have to wait until the runtime may be called.
struct Postponed {
  void (*release)(const Postponed&) noexcept;  // destroys the object
  void* handle;
  int device;
  std::uint64_t id = 0;
};
void postpone(Postponed item) noexcept;
/// Calls `item.release` now, later or never, as release_mode() says.
void release(const Postponed& item) noexcept;

/// The one function to call in a forked child of a process that had used the runtime.
void call_in_forked_child(void (*hook)() noexcept) noexcept;

/// Detects the end of the main thread: called where objects are made, so that none is destroyed after statics begin to die.
void watch_thread_exit();

}  // namespace runnel::inline RUNNEL_ABI::detail
