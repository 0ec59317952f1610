// SPDX-License-Identifier: Apache-2.0
/// The state of the runtime: streams and events by handle, blocks of memory by address, the device
/// of each thread, and the counts of the report. Requires: the engine's mutex is held, except for
/// the state of the calling thread.
#pragma once

#include <thread>
#include <unordered_map>

#include "engine.hpp"
#include "graph.hpp"
#include "ipc.hpp"
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

/// Handles consist of an index and a generation, so that a stale handle differs from the new handle
/// with the same index. With STANDIN_REUSE_HANDLES a handle is reused at once, as a real runtime
/// may do.
template <class Object>
class Handles {
 public:
  explicit Handles(uintptr_t base) : base_{base} {}
  Number add(std::shared_ptr<Object> object);
  /// Both count misuse.
  std::shared_ptr<Object> find(Number handle) const;
  bool remove(Number handle);
  size_t live() const { return live_.size(); }
  size_t made() const { return made_; }

 private:
  bool was_live(uintptr_t handle) const;

  uintptr_t base_;
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> live_;
  std::vector<uintptr_t> newest_;  // the latest handle of each index
  std::vector<size_t> free_;
  size_t made_ = 0;
};

/// Memory whose free is enqueued. An allocation that finds no free memory may reuse it before the
/// operation is done.
struct PendingFree {
  OperationPtr operation;
  uint64_t stream = 0;
  int device = 0;
  size_t open = 0;     // bytes that no allocation reuses yet
  size_t counted = 0;  // bytes that an allocation reuses
};

struct Event {
  int device = 0;
  bool timed = false;
  OperationPtr record;                    // null: never recorded
  CapturePtr capture;                     // null: recorded outside of a capture
  Position position;                      // in that capture
  std::shared_ptr<SharedRecords> shared;  // of an interprocess event
  uint64_t number = 0;                    // of `record` there

  /// The number of the last record, if that is another process's. Else 0.
  uint64_t foreign_number() const {
    const uint64_t last = shared == nullptr ? 0 : shared->last();
    return last == number ? 0 : last;
  }
};

enum class Memory { pageable, pinned, device, managed, freed };

/// A pool of memory that is allocated in stream order. The runtime takes its unused memory back at
/// a wait, and when an allocation finds no other memory. Seen on an H200 (CUDA 13.0), there also
/// for cudaMalloc() and for allocations from other pools.
struct Pool {
  int device;
  uint64_t threshold = 0;
  uint64_t used = 0;
  uint64_t held = 0;
  std::set<int> peers{};  // other devices, whose streams may use its memory
};

struct Block {
  size_t size = 0;
  Memory kind = Memory::pageable;
  int device = 0;
  bool registered = false;  // memory of the program, which it has registered
  // memory of an allocation node, whose address is fixed but which is in use only from a launch to
  // the free
  bool of_graph = false;
  size_t uses = 0;        // of memory of a graph: the launches that have not come to the free
  bool kept = false;      // of memory of a graph: no free is enqueued
  bool orphaned = false;  // of memory of a graph: the graph is gone
  SharedFile file{};      // the memory itself, if other processes can open it
  bool opened = false;    // another process has made it
  Pool* pool = nullptr;
  bool is_start = false;  // in the answer of Blocks::of(): the pointer is where the block begins

  bool in_use() const { return !of_graph || uses > 0; }
};

/// Addresses of blocks are never reused, and a freed block is inaccessible. So every access through
/// a stale pointer crashes.
class Blocks {
 public:
  Blocks();
  /// Returns null if there is no room. `counted` bytes of pending frees are considered free.
  void* allocate(size_t size, Memory kind, int device, size_t counted = 0, Pool* pool = nullptr);
  /// The same for device memory that other processes can open.
  void* allocate_shared(size_t size, int device);
  /// Another process's memory; null if it is gone. Opened again, it has the same address, and needs
  /// one more close().
  void* open(const SharedFile& file, int device);
  bool close(void* pointer);
  /// Returns an address for an allocation node, or null. begin_use() makes the memory accessible.
  void* reserve(size_t size, int device);
  bool begin_use(void* pointer);  // false: no room
  /// Frees a block. Memory of a graph ends one use.
  bool release(void* pointer);
  /// Of memory of a graph: whether no free is enqueued.
  void set_kept(const void* pointer, bool kept);
  void orphan(void* pointer);
  bool add_registered(void* pointer, size_t size);  // false: overlaps a block
  bool remove_registered(void* pointer);
  Block of(const void* pointer) const;
  /// Whether all the bytes are in one live block, or in pageable memory.
  bool holds(const void* pointer, size_t size) const;
  size_t used(int device) const;  // of pinned memory if `device` is -1
  size_t live(Memory kind) const;

 private:
  bool inside(const void* pointer) const;
  bool has_room(size_t size, Memory kind, int device, size_t counted) const;
  byte* take_addresses(size_t size, bool may_have_neighbour = false);
  bool begin(byte* block, const Block& as);
  void end(byte* block, const Block& as);
  static void unmap(byte* block, const Block& as);
  byte* region_;
  byte* next_;
  std::map<const byte*, Block> blocks_;
  std::map<int, size_t> used_;
  std::map<SharedFile, std::pair<byte*, int>> opened_;  // with how often
};

struct State {
  Handles<Stream> streams{0x10000};
  Handles<Event> events{0x20000};
  Handles<Graph> graphs{0x30000};
  size_t children = 0;  // graphs within graphs, which have handles
  Handles<NodePlace> nodes{0x40000};
  Handles<ExecutableGraph> executables{0x50000};
  std::vector<ExecutablePtr> dying;  // executable graphs that were destroyed while they ran
  Blocks blocks;
  std::map<uintptr_t, Pool> pools;  // by handle; that of a default pool is number_of_device()
  Misuse misuse;
  std::set<std::pair<int, int>> peers;
  std::map<int, unsigned int> device_flags;
  std::map<int, StreamPtr> legacy;
  std::vector<CapturePtr> captures;
  std::vector<PendingFree> pending_frees;  // oldest first
  uint64_t next_stream_id = 1;
  uint64_t next_capture = 1;
  std::thread::id holder;  // of a thread whose call holds other threads' calls
  long calls = 0;
  bool sticky = false;
  bool faulted = false;
  bool fault_in_release = false;
  std::thread::id fault_thread;
  const char* fault_call = "";

  StreamPtr make_stream(int device, StreamKind kind, int priority);
  /// Null if there is no such pool.
  Pool* pool(vendor::MemoryPool handle);
  /// The bytes that a device's pools hold unused.
  size_t unused(int device) const;
  /// Pools give unused memory back.
  void trim_pools();
  /// Finds the stream of a handle; the null stream and the per-thread default stream are those of
  /// the current device. Null if the handle is not live.
  StreamPtr stream(StreamHandle handle);
};
State& state();

/// The handle of what each device has one of.
inline Number number_of_device(int device) { return static_cast<uintptr_t>(device) + 1; }

/// The capture of a blocking stream that a call on `stream` would break, because `stream` is the
/// legacy default stream and would have to order with it; null if there is none.
inline CapturePtr captured_beside(const Stream& stream) {
  if (stream.kind != StreamKind::legacy) return nullptr;
  for (const CapturePtr& capture : state().captures)
    if (!capture->ended && capture->blocking) return capture;
  return nullptr;
}

/// Breaks the capture, and returns the code that the call returns.
inline Code break_capture(Capture& capture, Code code) {
  capture.broken = true;
  return code;
}

/// What a call that would enqueue work on the stream returns instead; `ok` if it may go on.
inline Code refusal(const Stream& stream) {
  if (const CapturePtr capture = captured_beside(stream))
    return break_capture(*capture, capture_implicit);
  return stream.capturing() && stream.capture->broken ? capture_invalidated : ok;
}

/// The state of a thread.
struct ThreadState {
  int device = 0;
  bool has_context = false;  // CUDA: since the thread set a device
  int last_error = 0;
  int capture_mode = 0;  // in the vendor's numbers
  std::map<int, StreamPtr> default_streams;
};
ThreadState& this_thread();

inline bool is_per_thread(StreamHandle handle) { return Number{handle}.value == 2; }
inline bool is_legacy(StreamHandle handle) { return Number{handle}.value < 2; }

}  // namespace standin
