// SPDX-License-Identifier: Apache-2.0
/// The state of the runtime: streams and events by handle, blocks of memory by address, the device of each thread, and the counts of the
/// report. Requires: the engine's mutex is held, except for the state of the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "vendor.hpp"

namespace standin {

struct Misuse {
  long double_destroy = 0;
  long use_after_destroy = 0;
  long unknown_handle = 0;
  long wrong_device = 0;
  long double_free = 0;
  long use_after_free = 0;
  long inside_host_function = 0;
};

/// Handles consist of an index and a generation, so that a stale handle differs from the new handle with the same index. With
/// STANDIN_REUSE_HANDLES a handle is reused at once, as a real runtime may do.
template <class Object>
class Handles {
 public:
  explicit Handles(std::uintptr_t base) : base_{base} {}
  std::uintptr_t add(std::shared_ptr<Object> object);
  [[nodiscard]] std::shared_ptr<Object> find(std::uintptr_t handle, Misuse& misuse) const;
  bool remove(std::uintptr_t handle, Misuse& misuse);
  [[nodiscard]] std::size_t live() const { return live_.size(); }
  [[nodiscard]] std::size_t made() const { return made_; }

 private:
  [[nodiscard]] bool was_live(std::uintptr_t handle) const;

  std::uintptr_t base_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> live_;
  std::vector<std::uintptr_t> newest_;  // the latest handle of each index
  std::vector<std::size_t> free_;
  std::size_t made_ = 0;
};

/// Memory whose free is enqueued. An allocation that finds no free memory may reuse it before the operation is done.
struct PendingFree {
  OperationPtr operation;
  std::uint64_t stream = 0;
  int device = 0;
  std::size_t open = 0;     // bytes that no allocation reuses yet
  std::size_t counted = 0;  // bytes that an allocation reuses
};

struct Event {
  int device = 0;
  bool timed = false;
  OperationPtr record;  // null: never recorded
  CapturePtr capture;   // null: recorded outside of a capture
};

enum class Memory { pageable, pinned, device, managed, freed };

struct Block {
  std::size_t size = 0;
  Memory kind = Memory::pageable;
  int device = 0;
  bool registered = false;  // memory of the program, which it has registered
};

/// Addresses of blocks are never reused, and a freed block is inaccessible. So every access through a stale pointer crashes.
class Blocks {
 public:
  Blocks();
  /// Returns null if there is no room. `counted` bytes of pending frees are considered free.
  void* allocate(std::size_t size, Memory kind, int device, std::size_t counted = 0);
  bool release(void* pointer);
  bool add_registered(void* pointer, std::size_t size);  // false: overlaps a block
  bool remove_registered(void* pointer);
  [[nodiscard]] Block of(const void* pointer) const;
  /// Whether all the bytes are in one live block, or in pageable memory.
  [[nodiscard]] bool holds(const void* pointer, std::size_t size) const;
  [[nodiscard]] std::size_t used(int device) const;  // of pinned memory if `device` is -1
  [[nodiscard]] std::size_t live(Memory kind) const;

 private:
  [[nodiscard]] bool inside(const void* pointer) const;
  std::byte* region_;
  std::byte* next_;
  std::map<const std::byte*, Block> blocks_;
  std::map<int, std::size_t> used_;
};

struct State {
  Handles<Stream> streams{0x10000};
  Handles<Event> events{0x20000};
  Blocks blocks;
  Misuse misuse;
  std::set<std::pair<int, int>> peers;
  std::map<int, StreamPtr> legacy;
  std::vector<CapturePtr> captures;
  std::vector<PendingFree> pending_frees;  // oldest first
  std::uint64_t next_stream_id = 1;
  long calls = 0;
  bool sticky = false;
  bool faulted = false;
  bool fault_in_release = false;
  const char* fault_call = "";

  StreamPtr make_stream(int device, StreamKind kind, int priority);
  /// Finds the stream of a handle; the null stream and the per-thread default stream are those of the current device. Null if the handle
  /// is not live.
  StreamPtr stream(vendor::StreamHandle handle);
  std::shared_ptr<Event> event(vendor::EventHandle handle);
};
State& state();

/// The capture of a blocking stream that a call on `stream` would break, because `stream` is the legacy default stream and would have to
/// order with it; null if there is none.
inline CapturePtr captured_beside(const Stream& stream) {
  if (stream.kind != StreamKind::legacy) return nullptr;
  for (const CapturePtr& capture : state().captures)
    if (!capture->ended && capture->blocking) return capture;
  return nullptr;
}

/// Breaks the capture, and returns the code that the call returns.
inline vendor::Code break_capture(Capture& capture, vendor::Code code) {
  capture.broken = true;
  return code;
}

/// The state of a thread.
struct ThreadState {
  int device = 0;
  int last_error = 0;
  int capture_mode = 0;  // in the vendor's numbers
  std::map<int, StreamPtr> default_streams;
};
ThreadState& this_thread();

inline bool is_per_thread(vendor::StreamHandle handle) { return reinterpret_cast<std::uintptr_t>(handle) == 2; }
inline bool is_legacy(vendor::StreamHandle handle) { return reinterpret_cast<std::uintptr_t>(handle) < 2; }

}  // namespace standin
