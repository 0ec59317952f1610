// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_communicator
/// Communication between processes in stream order. This header belongs to the component `comm`, a
/// library of its own: `runnel-comm-<backend>` for pkg-config, the component `comm` for CMake.
/// docs/beyond-one-device.md is the guide.
#pragma once

#include <runnel/detail/exchange.hpp>
#include <runnel/world.hpp>

#include <memory>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

/// What moves the data.
enum class Engine {
  automatic,  ///< ccl on GPUs if runnel was built with it, else mpi; also mpi if processes of MPI
              ///< share a device
  mpi,        ///< MPI, on every backend; several processes may share a device
  ccl  ///< NCCL on CUDA, RCCL on HIP: the device moves the data itself, and operations can be
       ///< captured. Each process needs a device of its own
};

/// Options of a communicator. Every process must pass the same options.
struct CommunicatorOptions {
  Engine engine = Engine::automatic;  ///< what moves the data
  /// An operation that takes longer, counted from the moment at which the stream reaches it, breaks
  /// the communicator with errc::timed_out. The limit also applies to the creation of the
  /// communicator by NCCL and RCCL. Zero (default): no limit, and a small operation is about 1 us
  /// faster.
  std::chrono::milliseconds timeout{0};
  /// Whether operations of this communicator may run at the same time as those of other
  /// communicators of the device. Requires, if true: the program's own order of operations excludes
  /// a deadlock between the communicators.
  bool concurrent = false;
  /// Whether all processes compare the arguments of each collective operation before it begins. If
  /// they differ, all processes get errc::invalid_argument; without the check they would hang or
  /// exchange wrong values. RUNNEL_CHECK=1 switches the check on too; every process must set it.
  /// Engine::mpi only.
  bool checked = false;
  const char* name = "";  ///< appears in error texts; copied
};

namespace detail {

/// Collects the operations of a Communicator::together().
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

/// Operations between processes. Each operation is enqueued on a stream: it runs after the work
/// submitted to the stream so far and before later work, and the call returns at once. All
/// processes must make the same calls in the same order.
///
/// Operations of all communicators of a device run in the order of their calls, even on different
/// streams, so that two communicators cannot deadlock (but see CommunicatorOptions::concurrent).
/// Operations of one communicator also run in the order of their calls, even on different devices.
/// The arguments are spans or buffers of device or managed memory of the stream's device. They must
/// stay alive until the stream has completed the operation, as for a copy.
///
/// A failure breaks the communicator: the next `synchronize()` of the stream throws the error, as
/// it throws an exception of a host function, and every later call throws it again. Invalid
/// arguments are refused before anything is enqueued. Every member may throw errc::invalid_handle
/// for a moved-from communicator. Inside a host function, every member that needs the other
/// processes throws errc::not_permitted. On a stream that is being captured, Engine::mpi throws
/// errc::capture. Engine::ccl records the operation into the graph; requires then: the communicator
/// lives as long as the graph, and the program orders the graph's launches and the other
/// operations, in the same way in all processes. Several threads may use a communicator at a time,
/// but the program must ensure the same order of calls in all processes.
class Communicator {
 public:
  /// Creates a communicator of all processes of the world, which must all call this. With
  /// Engine::ccl it belongs to the current device, the call returns after a first operation has
  /// run, and NCCL may wait for all work of the device. @throws errc::not_supported if runnel was
  /// built without the engine, if MPI's thread level is not MPI_THREAD_MULTIPLE, or if the program
  /// and this library have two different MPI libraries; errc::not_permitted unless MPI is
  /// initialised; errc::communicator_broken or errc::peer_lost if NCCL or RCCL refuses
  explicit Communicator(const World& world, const CommunicatorOptions& options = {});
  /// Creates one communicator for each of several devices of this process, in their order: rank i
  /// belongs to devices[i]. Engine::ccl only. Operations that wait for each other must be enqueued
  /// in one together(). @throws errc::invalid_argument for a device that appears twice and for an
  /// empty list; also as the constructor
  [[nodiscard]] static std::vector<Communicator> of_devices(
      std::span<const Device> devices, const CommunicatorOptions& options = {});
  ///@{ The other object is moved-from afterwards.
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;
  ///@}
  /// Returns at once. Operations that were enqueued still run.
  ~Communicator() = default;

  /// The number of this process, counted from 0.
  [[nodiscard]] int rank() const;
  /// The number of processes.
  [[nodiscard]] int size() const;
  /// The engine in use: mpi or ccl.
  [[nodiscard]] Engine engine() const;
  /// CommunicatorOptions::name.
  [[nodiscard]] const char* name() const;
  /// Creates a communicator of the processes that pass the same `color`, ordered by `key`, then by
  /// rank. All processes must call it. It waits for the other processes. With Engine::mpi it does
  /// not wait for operations in streams; with Engine::ccl it waits for those of the device's
  /// communicators. If one process has several communicators, each must call this on a thread of
  /// its own. @throws errc::invalid_argument for a negative color; errc::not_permitted inside
  /// together()
  [[nodiscard]] Communicator split(int color, int key = 0) const;

  /// On every process, element i of `out` becomes the reduction of the elements i of `in` of all
  /// processes.
  /// @throws errc::invalid_argument if `in` and `out` have different sizes or overlap in part, and
  /// for Reduce::min and Reduce::max of complex numbers
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void all_reduce(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(stream, Verb::all_reduce, in, out, how, 0));
  }
  /// The same in place. @throws errc::invalid_argument for Reduce::min and Reduce::max of complex
  /// numbers
  template <detail::DeviceTarget InOut>
    requires detail::ReducibleRange<InOut>
  void all_reduce(StreamRef stream, InOut&& inout, Reduce how = Reduce::sum) const {
    all_reduce(stream, inout, inout, how);
  }
  /// As all_reduce(), but only the process `root` gets the result. On the other processes `out` may
  /// be empty, and is not written.
  /// @throws errc::invalid_argument as all_reduce(), and if there is no process `root`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void reduce(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum, int root = 0) const {
    run(stream, detail::reduction(stream, Verb::reduce, in, out, how, root));
  }
  /// `out` becomes this process's part of the reduction: out.size() elements, from element rank() *
  /// out.size() on.
  /// @throws errc::invalid_argument as all_reduce(), but `in` must be size() times as large as
  /// `out`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void reduce_scatter(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(stream, Verb::reduce_scatter, in, out, how, 0));
  }
  /// Copies the elements of the process `root` to all processes. @throws errc::invalid_argument if
  /// there is no process `root`
  template <detail::DeviceTarget InOut>
  void broadcast(StreamRef stream, InOut&& inout, int root = 0) const {
    run(stream, detail::movement(stream, Verb::broadcast, inout, inout, root));
  }
  /// `out` becomes the concatenation of `in` of all processes, in the order of their ranks. @throws
  /// errc::invalid_argument unless `out` is size() times as large as `in`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out>
  void all_gather(StreamRef stream, In&& in, Out&& out) const {
    run(stream, detail::movement(stream, Verb::all_gather, in, out, 0));
  }
  /// Sends part r of `in` to process r, and receives part r of `out` from process r. Both consist
  /// of size() parts of the same size. @throws errc::invalid_argument if the sizes differ, or are
  /// not a multiple of size()
  template <detail::DeviceSource In, detail::DeviceTarget Out>
    requires detail::SameElements<In, Out>
  void all_to_all(StreamRef stream, In&& in, Out&& out) const {
    run(stream, detail::movement(stream, Verb::all_to_all, in, out, 0));
  }
  /// Sends the elements to the process `to`, which must receive the same number.
  /// @throws errc::invalid_argument if there is no process `to`, or if it is this one
  template <detail::DeviceSource In>
  void send(StreamRef stream, In&& in, int to) const {
    run(stream, detail::movement(stream, Verb::send, in, in, to));
  }
  /// Receives elements from the process `from`, which must send as many as `out` has.
  /// @throws errc::invalid_argument if there is no process `from`, or if it is this one
  template <detail::DeviceTarget Out>
  void receive(StreamRef stream, Out&& out, int from) const {
    run(stream, detail::movement(stream, Verb::receive, out, out, from));
  }
  /// Later work of the stream runs once the streams of all processes have reached their barrier.
  void barrier(StreamRef stream) const;

  /// The argument of the function of group().
  class Group {
   public:
    /// As Communicator::send(), in the group's stream.
    template <detail::DeviceSource In>
    void send(In&& in, int to) {
      steps_.push_back(detail::movement(stream_, Verb::send, in, in, to));
    }
    /// As Communicator::receive(), in the group's stream.
    template <detail::DeviceTarget Out>
    void receive(Out&& out, int from) {
      steps_.push_back(detail::movement(stream_, Verb::receive, out, out, from));
    }

   private:
    friend class Communicator;
    explicit Group(StreamRef stream) noexcept : stream_{stream} {}
    StreamRef stream_;
    std::vector<detail::Exchange> steps_{};
  };
  /// Calls `function(Group&)`, and enqueues its sends and receives as one operation, in which no
  /// send or receive waits for another: all processes may send first. If the function throws,
  /// nothing is enqueued. Requires, with Engine::mpi on a GPU: each other process also has its side
  /// of these messages in one group. There large messages are sent in pieces, and the next pieces
  /// of all messages of a group begin together.
  template <class F>
  void group(StreamRef stream, F&& function) const {
    Group all{stream};
    std::forward<F>(function)(all);
    run_group(stream, all.steps_);
  }

  /// Calls `function()`, and then enqueues, as one unit, the operations that it called on
  /// communicators of Engine::ccl. Communicators of several devices of one process need this:
  /// without it their operations would deadlock. If the function throws, nothing is enqueued.
  /// Operations of Engine::mpi are enqueued by their own calls. @throws errc::not_permitted inside
  /// another together() of the thread
  template <class F>
  static void together(F&& function) {
    detail::Together all;
    std::forward<F>(function)();
    all.enqueue();
  }

  /// Throws the error that broke the communicator, if it is broken.
  void check() const;
  /// Breaks the communicator in this process. With Engine::ccl all its operations end. With
  /// Engine::mpi operations that have not begun end without doing anything, and so do those that
  /// wait for other processes, if the communicator has a timeout. Other operations continue in MPI,
  /// which cannot be interrupted.
  void abort() noexcept;

  /// The handle of the MPI communicator that the operations use, as MPI_Comm_c2f() returns it; -1
  /// with Engine::ccl. Requires: the program uses it for no operations of its own, because MPI
  /// could match them with the library's.
  [[nodiscard]] int mpi_communicator() const;
  /// The ncclComm_t of NCCL or RCCL; null with Engine::mpi, and once the communicator is aborted.
  /// Requires: as mpi_communicator().
  [[nodiscard]] void* ccl_communicator() const;

 private:
  explicit Communicator(std::shared_ptr<detail::CommunicatorState> state) noexcept
      : state_{std::move(state)} {}
  using Verb = detail::Verb;
  void run(StreamRef stream, const detail::Exchange& step) const;
  void run_group(StreamRef stream, const std::vector<detail::Exchange>& steps) const;

  std::shared_ptr<detail::CommunicatorState> state_;
};

}  // namespace runnel::inline RUNNEL_ABI
