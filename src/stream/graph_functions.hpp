// SPDX-License-Identifier: Apache-2.0
/// The host functions of graphs. A graph's functions live as long as the graph, and run once for each launch.
#pragma once

#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "stream/host_functions.hpp"
#include "stream/stream_call.hpp"
#include "stream/stream_point.hpp"

#include <runnel/config.hpp>
#include <runnel/keep.hpp>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// The host functions of one graph, and which stream launched it when: the launches of a graph run one after the other, so that the n-th
/// run of a function belongs to the n-th launch.
class GraphFunctions {
 public:
  GraphFunctions() = default;
  GraphFunctions(const GraphFunctions&) = delete;
  GraphFunctions& operator=(const GraphFunctions&) = delete;

  ~GraphFunctions();

  /// Whether there is neither a function nor an object.
  [[nodiscard]] bool is_empty() const noexcept { return functions_.empty() && kept_.empty(); }
  /// Adds a node to the stream's capture, which calls the function.
  void capture(const StreamCall& call, OwnedFunction function);
  /// Keeps an object as long as the functions. Takes ownership unless it throws. @throws std::bad_alloc
  void keep(Kept* object);
  /// Destroys the functions; nodes that are still called do nothing then. One that runs at the moment stays.
  void discard() noexcept;
  ///@{ Around a launch. Requires: no two launches overlap. @throws std::bad_alloc
  void begin_launch(StreamUse stream);
  void undo_launch() noexcept;
  ///@}

 private:
  struct Function {
    Function(OwnedFunction owned, GraphFunctions& of) noexcept;
    Function(const Function&) = delete;
    Function& operator=(const Function&) = delete;
    ~Function() { destroy(); }
    void destroy() noexcept;
    [[nodiscard]] OwnedFunction take() noexcept { return OwnedFunction{function.exchange(nullptr, std::memory_order_acq_rel)}; }
    sync::Atomic<HostFunction*> function;  // null while it runs
    GraphFunctions& graph;
    sync::Atomic<std::uint64_t> runs{0};
  };
  /// Successive launches on one stream, with one label and in one epoch.
  struct Launches {
    std::uint64_t first;
    StreamUse stream;
    std::uint64_t label;  // host_function_label
    std::uint64_t epoch;  // Slot::completions
    [[nodiscard]] bool has_same(const Launches& other) const noexcept {
      return stream == other.stream && label == other.label && epoch == other.epoch;
    }
  };
  static void run(void* function) noexcept;
  [[nodiscard]] Launches launch_of(std::uint64_t number) noexcept;
  void forget_old_launches() noexcept;

  struct DestroyKept {
    void operator()(Kept* object) const noexcept { object->destroy(object); }
  };
  sync::Mutex capturing_;  // guards the lists while they grow: threads may submit to several streams of one capture
  std::list<Function> functions_;
  std::vector<std::unique_ptr<Kept, DestroyKept>> kept_;
  SpinLock lock_;  // guards the rest
  std::uint64_t count_ = 0;
  std::vector<Launches> launches_;
};

/// A capture that was begun with the library and has not ended.
struct OpenCapture {
  std::uint64_t number = 0;  // the runtime's, or that of announce_capture(); 0: there is no such capture
  StreamUse stream{};        // on which it was begun
  std::thread::id thread{};  // that began it
  std::shared_ptr<GraphFunctions> functions{};
  const char* broken_by = nullptr;  // the operation that has broken it, as far as that is known
};
/// Enters a capture that is about to begin, so that no thread begins a wait for its device meanwhile. Returns a number that stands for it
/// until it is numbered. @throws std::bad_alloc
[[nodiscard]] std::uint64_t announce_capture(OpenCapture capture);
/// As long as the lock is held, no capture begins with the library.
[[nodiscard]] std::unique_lock<sync::Mutex> keep_captures_from_beginning() noexcept;
/// The runtime has begun the capture, and gave it that number.
void number_capture(std::uint64_t announced, std::uint64_t number) noexcept;
/// @throws errc::capture if the calling thread has begun a capture that is open
void refuse_in_own_capture(const char* operation);
/// The capture of that number.
[[nodiscard]] OpenCapture find_capture(std::uint64_t number) noexcept;
/// What the graph of the stream's capture owns. Requires: the stream is being captured. @throws errc::capture if the capture is broken, or
/// was begun elsewhere; `what` is what no Graph would own then
[[nodiscard]] std::shared_ptr<GraphFunctions> functions_of_capture(const StreamCall& call, const char* what);
/// The capture that was begun on the stream.
[[nodiscard]] OpenCapture capture_begun_on(StreamUse stream) noexcept;
/// All of them. @throws std::bad_alloc
[[nodiscard]] std::vector<OpenCapture> open_captures();
/// That operation has broken the capture, unless an earlier one has.
void note_broken(std::uint64_t number, const char* operation) noexcept;
void close_capture(std::uint64_t number) noexcept;
/// Ends the stream's native capture: tries again if that fails once. After an error `graph` is null. Requires: as abandon_capture().
[[nodiscard]] backend::status end_native_capture(native::stream stream, native::graph& graph) noexcept;
/// The same for a graph that nobody wants.
void discard_native_capture(native::stream stream) noexcept;
/// Ends the capture that was begun on the stream, if there is one: nobody else will, because the library's views of the stream end.
/// Requires: its device is current.
void abandon_capture(StreamUse stream) noexcept;
/// The same for all captures that the calling thread has begun. Requires: the runtime may be called.
void abandon_own_captures() noexcept;
/// As abandon_capture(), for a native stream that exists no more.
void forget_capture(StreamUse stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
