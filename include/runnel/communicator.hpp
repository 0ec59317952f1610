// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_communicator
/// Communication between processes in stream order. This header belongs to the component `comm`, a
/// library of its own: `runnel-comm-<backend>` for pkg-config, the component `comm` for CMake.
/// docs/beyond-one-device.md is the guide.
#pragma once

#include <runnel/detail/exchange.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/stream.hpp>
#include <runnel/world.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

/// What moves the data.
enum class Engine {
  automatic,  ///< ccl on GPUs where runnel was built with it, else mpi; also mpi if processes of
              ///< MPI share a device
  mpi,        ///< MPI, on every backend; several processes may share a device
  ccl  ///< NCCL on CUDA, RCCL on HIP: the device itself, whose operations can be captured. A device
       ///< for each process
};

/// How a communicator works. Every process has to give the same options.
struct CommunicatorOptions {
  Engine engine = Engine::automatic;  ///< what moves the data
  /// An operation that takes longer, once its turn in the stream has come, breaks the communicator
  /// with errc::timed_out. It also limits how long NCCL and RCCL take to make the communicator.
  /// Zero: no limit, and a small operation is about 1 us faster.
  std::chrono::milliseconds timeout{0};
  /// Whether operations of this communicator may run at the same time as those of other
  /// communicators of the device. Then the programmer has to see to it that they cannot wait for
  /// each other in a circle.
  bool concurrent = false;
  /// Whether all processes compare the arguments of each collective operation before it begins.
  /// Processes that do not agree then all get errc::invalid_argument, where they would hang or
  /// exchange wrong values else. Also with RUNNEL_CHECK=1, which every process needs then.
  /// Engine::mpi only.
  bool checked = false;
  const char* name = "";  ///< for error texts; copied
};

namespace detail {

/// The operations of a Communicator::together().
class Together {
 public:
  Together();
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;
  ~Together();
  void enqueue();
  struct Operations;

 private:
  std::unique_ptr<Operations> operations_;
};

}  // namespace detail

/// Operations between processes. Each belongs to a stream: it runs after what is in the stream,
/// before what is enqueued later, and the call returns at once. All processes make the same calls
/// in the same order.
///
/// Operations of all communicators of a device run in the order of their calls, whatever their
/// streams, so that two communicators cannot wait for each other in a circle (but see
/// CommunicatorOptions::concurrent). So do the operations of one communicator, whatever their
/// devices. The memory belongs to the stream's device: spans or buffers of device or managed
/// memory, which live until the stream has passed, as for a copy.
///
/// A failure breaks the communicator: the next `synchronize()` of the stream throws the error, as
/// it throws an exception of a host function, and every later call throws it again. Wrong arguments
/// are refused before anything is enqueued. Every member may throw errc::invalid_handle for a
/// moved-from communicator. Inside a host function, what needs the other processes throws
/// errc::not_permitted. A stream that is being captured gets errc::capture from Engine::mpi.
/// Engine::ccl records the operation into the graph: then the communicator has to live as long as
/// the graph, and the program has to order the graph's launches and other operations, the same in
/// all processes. Calls of several threads are safe; but to call in the same order everywhere is up
/// to the program.
class Communicator {
 public:
  /// Of all processes of the world, which all have to call this. With Engine::ccl it is of the
  /// current device, the first operation has run when it returns, and NCCL may wait for all work of
  /// the device. @throws errc::not_supported if runnel was built without the engine, if MPI's
  /// thread level is not MPI_THREAD_MULTIPLE, or if the program and this library have two different
  /// MPI libraries; errc::not_permitted unless MPI is initialised; errc::communicator_broken or
  /// errc::peer_lost if NCCL or RCCL refuses
  explicit Communicator(const World& world, const CommunicatorOptions& options = {});
  /// One communicator for each of several devices of this process, in their order: rank i is of
  /// device i. Engine::ccl only. Operations that need each other have to be in a together().
  /// @throws errc::invalid_argument if a device is named twice or none is; else as the constructor
  [[nodiscard]] static std::vector<Communicator> of_devices(
      std::span<const Device> devices, const CommunicatorOptions& options = {});
  ///@{ The other object is moved-from afterwards.
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;
  ///@}
  /// Returns at once. Operations that are enqueued still run.
  ~Communicator() = default;

  /// The number of this process, from 0.
  [[nodiscard]] int rank() const;
  /// How many processes there are.
  [[nodiscard]] int size() const;
  /// What moves the data: mpi or ccl.
  [[nodiscard]] Engine engine() const;
  /// CommunicatorOptions::name.
  [[nodiscard]] const char* name() const;
  /// The communicator of the processes that give the same `color`, ordered by `key`, then by rank.
  /// All processes have to call it. It waits for the other processes; with Engine::mpi not for
  /// operations in streams, with Engine::ccl for those of the device's communicators. Communicators
  /// of one process each need a thread of their own for it. @throws errc::invalid_argument for a
  /// negative color; errc::not_permitted inside together()
  [[nodiscard]] Communicator split(int color, int key = 0) const;

  /// On every process, each element of `out` becomes the reduction of the elements at that place in
  /// the `in` of all processes.
  /// @throws errc::invalid_argument if `in` and `out` have different sizes or overlap in part, and
  /// for the least or greatest of complex numbers
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void all_reduce(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(detail::Verb::all_reduce, in, out, how, 0));
  }
  /// The same in place. @throws errc::invalid_argument for the least or greatest of complex numbers
  template <detail::DeviceTarget InOut>
    requires detail::ReducibleRange<InOut>
  void all_reduce(StreamRef stream, InOut&& inout, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(detail::Verb::all_reduce, inout, inout, how, 0));
  }
  /// As all_reduce(), but only the process `root` gets the result. Elsewhere `out` may be empty,
  /// and is not touched.
  /// @throws errc::invalid_argument as all_reduce(), and if there is no process `root`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void reduce(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum, int root = 0) const {
    run(stream, detail::reduction(detail::Verb::reduce, in, out, how, root));
  }
  /// `out` becomes this process's part of the reduction: as many elements as `out` has, from rank()
  /// * out.size() on.
  /// @throws errc::invalid_argument as all_reduce(), but `in` has to be size() times as large as
  /// `out`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void reduce_scatter(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(detail::Verb::reduce_scatter, in, out, how, 0));
  }
  /// The elements of the process `root` are copied to all processes. @throws errc::invalid_argument
  /// if there is no process `root`
  template <detail::DeviceTarget InOut>
  void broadcast(StreamRef stream, InOut&& inout, int root = 0) const {
    run(stream, detail::movement(detail::Verb::broadcast, inout, inout, root));
  }
  /// `out` becomes the `in` of all processes, one after the other. @throws errc::invalid_argument
  /// unless `out` is size() times as large as `in`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out>
  void all_gather(StreamRef stream, In&& in, Out&& out) const {
    run(stream, detail::movement(detail::Verb::all_gather, in, out, 0));
  }
  /// Part r of `in` goes to process r, and part r of `out` comes from process r. Both have size()
  /// parts of the same size.
  /// @throws errc::invalid_argument if the sizes differ, or cannot be divided so
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out>
  void all_to_all(StreamRef stream, In&& in, Out&& out) const {
    run(stream, detail::movement(detail::Verb::all_to_all, in, out, 0));
  }
  /// Sends the elements to the process `to`, which has to receive as many.
  /// @throws errc::invalid_argument if there is no process `to`, or if it is this one
  template <detail::DeviceSource In>
  void send(StreamRef stream, In&& in, int to) const {
    run(stream, detail::movement(detail::Verb::send, in, in, to));
  }
  /// Receives elements from the process `from`, which has to send as many as `out` has.
  /// @throws errc::invalid_argument if there is no process `from`, or if it is this one
  template <detail::DeviceTarget Out>
  void receive(StreamRef stream, Out&& out, int from) const {
    run(stream, detail::movement(detail::Verb::receive, out, out, from));
  }
  /// The stream goes on once all processes' streams have come to their barrier.
  void barrier(StreamRef stream) const;

  /// What group() gives to its function.
  class Group {
   public:
    /// As Communicator::send(), in the group's stream.
    template <detail::DeviceSource In>
    void send(In&& in, int to) {
      steps_.push_back(detail::movement(detail::Verb::send, in, in, to));
    }
    /// As Communicator::receive(), in the group's stream.
    template <detail::DeviceTarget Out>
    void receive(Out&& out, int from) {
      steps_.push_back(detail::movement(detail::Verb::receive, out, out, from));
    }

   private:
    friend class Communicator;
    std::vector<detail::Exchange> steps_;
  };
  /// Calls `function(Group&)`, and enqueues what it sends and receives as one operation, in which
  /// nothing waits for the other: all processes may send first. If the function throws, nothing is
  /// enqueued.
  template <class F>
  void group(StreamRef stream, F&& function) const {
    Group all;
    std::forward<F>(function)(all);
    run_group(stream, all.steps_);
  }

  /// Calls `function()`, and then enqueues at once what it has enqueued on communicators of
  /// Engine::ccl: needed for communicators of several devices of one process, which would wait for
  /// each other else. If the function throws, nothing is enqueued. Operations of Engine::mpi are
  /// enqueued by their own calls. @throws errc::not_permitted inside another together() of the
  /// thread
  template <class F>
  static void together(F&& function) {
    detail::Together all;
    std::forward<F>(function)();
    all.enqueue();
  }

  /// Throws the error that broke the communicator, if it is broken.
  void check() const;
  /// Breaks the communicator here. With Engine::ccl all its operations end. With Engine::mpi
  /// operations that have not begun end without doing anything, and so do those that wait for other
  /// processes, if the communicator has a timeout. The others stay in MPI, which cannot be
  /// interrupted.
  void abort() noexcept;

  /// The MPI communicator in which the operations run, as MPI_Comm_c2f() gives it: not for
  /// operations of the program's own, which would meet them. -1 with Engine::ccl.
  [[nodiscard]] int mpi_communicator() const;
  /// The ncclComm_t of NCCL or RCCL, with the same rule. Null with Engine::mpi, and once the
  /// communicator is aborted.
  [[nodiscard]] void* ccl_communicator() const;

 private:
  explicit Communicator(std::shared_ptr<detail::CommunicatorState> state) noexcept
      : state_{std::move(state)} {}
  void run(StreamRef stream, const detail::Exchange& step) const;
  void run_group(StreamRef stream, const std::vector<detail::Exchange>& steps) const;

  std::shared_ptr<detail::CommunicatorState> state_;
};

}  // namespace runnel::inline RUNNEL_ABI
