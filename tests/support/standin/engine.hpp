// SPDX-License-Identifier: Apache-2.0
/// The implementation behind the stand-in's entry points: a graph of operations, the threads that
/// run them, and the order of execution. It is written independently of runnel's host backend and
/// shares no code with it, so that a mistake in one shows in the other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "../loops.hpp"
#include "inspect.hpp"

namespace standin {

using std::byte, std::size_t, std::uint32_t, std::uint64_t, std::uintptr_t;
using test_support::range;
using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

/// A handle of the vendor's.
struct Number {
  uintptr_t value;
  Number(uintptr_t number = 0) : value{number} {}
  template <class T>
  Number(T* handle) : value{reinterpret_cast<uintptr_t>(handle)} {}
  template <class T>
  operator T*() const {
    return reinterpret_cast<T*>(value);
  }
};

struct Range {
  const byte* begin;
  size_t size;
};
inline bool overlap(Range a, Range b) {
  return a.begin < b.begin + b.size && b.begin < a.begin + a.size;
}

/// Rows of bytes. A flat copy has one row.
struct Rows {
  byte* begin = nullptr;
  size_t pitch = 0;
  size_t width = 0;
  size_t height = 0;

  byte* row(size_t i) const { return begin + i * pitch; }
  Range range() const { return {begin, height == 0 ? 0 : (height - 1) * pitch + width}; }
};

/// What an operation does. In a capture it decides the type of the node.
enum class Kind {
  order,  ///< only orders others
  mark,   ///< an event's record, which does not count as work of the stream
  copy,
  fill,
  kernel,
  host_function,
  value,  ///< waits for a value in memory, or writes one
  allocation,
  free,
  graph,         ///< launches another graph
  event_record,  ///< within a graph
  event_wait,
};

/// What runs, without its place in an order. A graph runs the same work at each launch.
struct Work {
  Kind kind = Kind::order;
  std::function<void()> run{};
  std::vector<Range> touches{};    // of a copy or a fill: its destination first
  std::function<void()> poison{};  // overwrites the destination of a copy or a fill
  // a host function, or a wait for the host: it is unknown which memory it uses
  bool opaque = false;
  void* memory = nullptr;             // what a node allocates or frees
  const char* name = "";              // of a kernel
  size_t bytes = 0;                   // of a copy or a fill
  Rows to{}, from{};                  // the same
  std::vector<byte> value{};          // of a fill: an element
  void (*function)(void*) = nullptr;  // of a host function in a graph
  void* data = nullptr;
  int shape = 0;  // an executable graph can take over other arguments only of the same shape
};

struct Operation : Work {
  uint64_t number = 0;
  int device = 0;
  // the id of the stream that it was submitted to; 0: none
  uint64_t stream = 0;
  std::vector<std::shared_ptr<Operation>> before;  // kept until done, so that a demand reaches them
  std::vector<std::shared_ptr<Operation>> after;
  size_t unmet = 0;
  size_t* counted = nullptr;  // the number of pending operations of its channel
  bool demanded = false;
  bool begun = false;
  bool done = false;
  Clock::time_point due;
  Clock::time_point finished;
};
using OperationPtr = std::shared_ptr<Operation>;
inline OperationPtr operation_of(Work work = {}) {
  auto made = std::make_shared<Operation>();
  static_cast<Work&>(*made) = std::move(work);
  return made;
}

enum class StreamKind { blocking, independent, legacy };

struct Graph;

/// A capture of a stream. Operations that are submitted to the stream, or to streams that join by
/// an event, become nodes of a graph.
struct Capture {
  uint64_t number = 0;
  uint64_t origin = 0;           // the stream's id
  std::set<int> devices;         // of the streams that take part
  bool blocking = false;         // whether that stream orders with the legacy default stream
  int mode = 0;                  // as the vendor numbers them
  const void* thread = nullptr;  // the ThreadState of the thread that began the capture
  std::shared_ptr<Graph> graph;  // null once the capture has ended
  Number handle;                 // of the graph
  std::set<size_t> waited_for;   // nodes that another stream waits for
  bool broken = false;
  bool ended = false;
};
using CapturePtr = std::shared_ptr<Capture>;
/// The nodes that come before what a captured stream does next: numbers within the graph.
using Position = std::vector<size_t>;

struct Stream {
  uint64_t id = 0;
  int device = 0;
  int priority = 0;
  StreamKind kind = StreamKind::independent;
  OperationPtr last;
  OperationPtr last_work;       // the last operation that is no mark
  OperationPtr legacy_before;   // the operation of the legacy stream that `last` comes after
  bool thread_default = false;  // a per-thread default stream, which ends with its thread
  // has allocated memory in stream order: see refuse_to_end() in state.cpp
  bool has_allocated = false;
  OperationPtr host_function;  // the last host function
  CapturePtr capture;          // the last capture of the stream
  Position position;           // in that capture

  /// The operation that must be done for the stream to be done. A mark that waits only for the
  /// legacy stream is not work of the stream.
  OperationPtr own_last() const {
    const bool held_by_legacy = last != nullptr && last->kind == Kind::mark &&
                                legacy_before != nullptr && !legacy_before->done;
    return held_by_legacy ? last_work : last;
  }
  bool capturing() const { return capture != nullptr && !capture->ended; }
};
using StreamPtr = std::shared_ptr<Stream>;

enum class Scheduler {
  eager,    ///< ready operations run at once, the oldest first
  lazy,     ///< an operation runs when a wait or a query demands it, or after a time limit
  reverse,  ///< operations are delayed for a moment, then the newest runs first
  random,   ///< operations are delayed for a random time, then run in any order
};

class Engine {
 public:
  Engine();

  std::mutex mutex;  // guards everything in the stand-in that threads share
  std::condition_variable done;
  std::atomic<StandinWatcher> watcher{nullptr};  // of copies, fills and kernels that have run

  // Requires for all of them: the mutex is held.
  /// Orders the operation after the stream's last operation, after `also`, after those that the
  /// legacy default stream requires, and after the last operation of the channel. Blocks the
  /// caller, with the mutex unlocked, while the channel is full. An operation of a captured stream
  /// becomes a node instead.
  void submit(Stream& stream, OperationPtr operation, const std::vector<OperationPtr>& also = {});
  /// Orders the operation only after `before`. It is in no channel.
  void submit_unordered(int device, uint64_t stream, OperationPtr operation,
                        const std::vector<OperationPtr>& before);
  /// Demands an operation and everything that it depends on, so that they run; does not wait.
  void demand(const OperationPtr& operation);
  void wait(Lock& lock, const OperationPtr& operation);
  /// Waits for all pending operations of a device, or of all devices if `device` is -1.
  void wait_for_device(Lock& lock, int device);
  bool legacy_is_idle(int device) const;
  std::vector<OperationPtr> legacy_tails(int device) const;
  /// Host functions that have not begun will not run. Operations after them do.
  void drop_host_functions();
  /// Whether no pending operation uses these bytes, so that they may be overwritten.
  bool untouched_by_pending(Range range) const;

 private:
  struct DeviceOrder {
    OperationPtr legacy;
    // the last operation of each blocking stream, destroyed streams included
    std::map<uint64_t, OperationPtr> blocking;
  };

  /// A channel of a device, if STANDIN_CHANNELS limits them. Its operations run one after the
  /// other, whichever streams they belong to.
  struct Channel {
    OperationPtr last;
    size_t pending = 0;
  };

  Channel* enter_channel(const Stream& stream);
  void prepare(Operation& operation, int device);
  /// Requires: `operation` is ordered after all that it has to wait for.
  void enqueue(OperationPtr operation);
  void work();
  void wake();
  bool runnable(const Operation& operation, Clock::time_point now) const;
  size_t choose(Clock::time_point now, Clock::time_point& next);
  void complete(Operation& operation);
  void tell_watcher(const Operation& operation, Clock::time_point begin) const;

  Scheduler scheduler_;
  std::chrono::milliseconds patience_;
  std::mt19937 random_;
  std::condition_variable work_;
  std::vector<OperationPtr> ready_;
  std::map<uint64_t, OperationPtr> pending_;
  std::map<int, DeviceOrder> order_;
  // key: device and number of the channel
  std::map<std::pair<int, uint64_t>, Channel> channels_;
  uint64_t next_number_ = 1;
  int idle_ = 0;
  bool starting_ = false;      // a new thread has not had the mutex yet
  size_t host_functions_ = 0;  // number of running host functions
};

/// Never destroyed, because threads may use the engine while the process exits.
Engine& engine();

/// Whether the calling thread runs a host function.
bool& inside_host_function();

}  // namespace standin
