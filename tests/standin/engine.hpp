// SPDX-License-Identifier: Apache-2.0
/// What runs beneath the stand-in's entry points: a graph of operations, the threads that run them, and the order they choose.
/// Written apart from runnel's host backend, and sharing nothing with it, so that one's mistake cannot hide the other's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace standin {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

struct Range {
  const std::byte* begin;
  std::size_t size;
};

struct Operation {
  std::function<void()> run;
  std::vector<Range> touches;
  bool is_host_function = false;
  bool is_mark = false;  // an event's record: no work of the stream
  bool opaque = false;   // a host function, or a wait for the host: nobody knows what it reads or orders

  std::uint64_t number = 0;
  int device = 0;
  std::vector<std::shared_ptr<Operation>> before;  // kept until done, so that a demand can be passed on
  std::vector<std::shared_ptr<Operation>> after;
  std::size_t unmet = 0;
  std::size_t* counted = nullptr;  // in its channel
  bool demanded = false;
  bool begun = false;
  bool done = false;
  Clock::time_point due;
  Clock::time_point finished;
};
using OperationPtr = std::shared_ptr<Operation>;

enum class StreamKind { blocking, independent, legacy };

/// From a stream's begin to its end of capture: what is submitted to it, and to streams that join by an event, is counted, not run.
struct Capture {
  std::uint64_t origin = 0;      // the stream's id
  bool blocking = false;         // whether that stream orders with the legacy default stream
  int mode = 0;                  // as the vendor numbers them
  const void* thread = nullptr;  // the one that began it: its ThreadState
  std::size_t nodes = 0;
  bool broken = false;
  bool ended = false;
};
using CapturePtr = std::shared_ptr<Capture>;

struct Stream {
  std::uint64_t id = 0;
  int device = 0;
  int priority = 0;
  StreamKind kind = StreamKind::independent;
  OperationPtr last;
  OperationPtr last_work;       // marks apart
  OperationPtr legacy_before;   // of the legacy stream, which `last` is behind
  bool thread_default = false;  // ends with its thread
  bool has_allocated = false;   // memory in its order: see refuse_to_end() in state.cpp
  OperationPtr host_function;   // the last one
  CapturePtr capture;           // the last one that it was part of

  /// What the stream's own progress is asked of: a mark that only the legacy stream holds up is no work of the stream.
  [[nodiscard]] OperationPtr own_last() const {
    const bool held_by_legacy = last != nullptr && last->is_mark && legacy_before != nullptr && !legacy_before->done;
    return held_by_legacy ? last_work : last;
  }
  [[nodiscard]] bool capturing() const { return capture != nullptr && !capture->ended; }
};
using StreamPtr = std::shared_ptr<Stream>;

enum class Scheduler {
  eager,    ///< whatever is ready runs at once, oldest first
  lazy,     ///< nothing runs until a wait or a query asks for it, or its patience ends
  reverse,  ///< held for a moment, then newest first
  random,   ///< held for a random moment, then any
};

class Engine {
 public:
  Engine();

  std::mutex mutex;  // guards everything in this library that threads share
  std::condition_variable done;

  // All with the mutex held
  /// Orders the operation after the stream's last one, `also`, what the legacy default stream demands, and the last one of the channel;
  /// holds the caller, with the mutex open, while the channel is full.
  void submit(Stream& stream, OperationPtr operation, const OperationPtr& also = nullptr);
  /// Asks for an operation and all that it depends on, without waiting.
  void demand(const OperationPtr& operation);
  void wait(Lock& lock, const OperationPtr& operation);
  /// Of one device, or of all with -1.
  void wait_for_device(Lock& lock, int device);
  [[nodiscard]] bool legacy_is_idle(int device) const;
  [[nodiscard]] std::vector<OperationPtr> legacy_tails(int device) const;
  /// Those that have not begun will not run; what comes after them does.
  void drop_host_functions();
  /// Whether nothing that is still to run can see these bytes: then they may be overwritten with poison.
  [[nodiscard]] bool untouched_by_pending(Range range) const;

 private:
  struct DeviceOrder {
    OperationPtr legacy;
    std::map<std::uint64_t, OperationPtr> blocking;  // the last operation of each blocking stream, also of destroyed ones
  };

  /// One of a device's channels, where those are limited: its operations run one after the other, whichever stream they are of.
  struct Channel {
    OperationPtr last;
    std::size_t pending = 0;
  };

  [[nodiscard]] Channel* enter_channel(const Stream& stream);
  void work();
  void wake();
  [[nodiscard]] bool runnable(const Operation& operation, Clock::time_point now) const;
  [[nodiscard]] std::size_t choose(Clock::time_point now, Clock::time_point& next);
  void complete(Operation& operation);

  Scheduler scheduler_;
  std::chrono::milliseconds patience_;
  std::mt19937 random_;
  std::condition_variable work_;
  std::vector<OperationPtr> ready_;
  std::map<std::uint64_t, OperationPtr> pending_;
  std::map<int, DeviceOrder> order_;
  std::map<std::pair<int, std::uint64_t>, Channel> channels_;  // by device and number
  std::uint64_t next_number_ = 1;
  int idle_ = 0;
  std::size_t host_functions_ = 0;  // that are running
};

/// Never destroyed: threads of the process may still use it while it exits.
Engine& engine();

/// Set on the threads that run host functions, while they do.
bool& inside_host_function();

}  // namespace standin
