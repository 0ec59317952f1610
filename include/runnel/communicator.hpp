// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_communicator
/// Communication between processes in stream order. This header belongs to the component `comm`, a library of its own:
/// `runnel-comm-<backend>` for pkg-config, the component `comm` for CMake. docs/beyond-one-device.md is the guide.
#pragma once

#include <runnel/detail/transfer.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

/// The processes that communicate, and this one's place among them. `mpi::world()` of <runnel/mpi.hpp> makes one.
struct World {
  int rank = 0;                  ///< of this process, from 0
  int size = 1;                  ///< how many processes
  int local_rank = 0;            ///< of this process among those of the same machine: a good choice of a device
  int mpi_communicator = -1;     ///< the handle of an MPI communicator, as MPI_Comm_c2f() gives it
  const char* mpi_library = "";  ///< what MPI_Get_library_version() says in the program
};

/// How a communicator works. Every process has to give the same options.
struct CommunicatorOptions {
  /// An operation that takes longer, once its turn in the stream has come, breaks the communicator with errc::timed_out. Zero: it takes as
  /// long as it takes, and a small operation is about 1 us faster.
  std::chrono::milliseconds timeout{0};
  /// Whether operations of this communicator may run at the same time as those of other communicators of the device. Then the programmer
  /// has to see to it that they cannot wait for each other in a circle.
  bool concurrent = false;
  /// Whether all processes compare the arguments of each collective operation before it begins. Processes that do not agree then all get
  /// errc::invalid_argument, where they would hang or exchange wrong values else. Also with RUNNEL_CHECK=1, which every process needs then.
  bool checked = false;
  const char* name = "";  ///< for error texts; copied
};

/// Operations between processes. Each belongs to a stream: it runs after what is in the stream, before what is enqueued later, and the call
/// returns at once. All processes make the same calls in the same order.
///
/// Operations of all communicators of a device run in the order of their calls, whatever their streams, so that two communicators cannot
/// wait for each other in a circle (but see CommunicatorOptions::concurrent). The memory belongs to the stream's device: spans or buffers
/// of device or managed memory, which live until the stream has passed, as for a copy.
///
/// A failure breaks the communicator: the next `synchronize()` of the stream throws the error, as it throws an exception of a host
/// function, and every later call throws it again. Wrong arguments are refused before anything is enqueued. Every member may
/// throw errc::invalid_handle for a moved-from communicator, errc::capture for a stream that is being captured, and errc::not_permitted
/// inside a host function. Calls of several threads are safe; but to call in the same order everywhere is up to the program.
class Communicator {
 public:
  /// Of all processes of the world, which all have to call this. @throws errc::not_supported if MPI's thread level is not
  /// MPI_THREAD_MULTIPLE, or if the program and this library have two different MPI libraries; errc::not_permitted unless MPI is
  /// initialised
  explicit Communicator(const World& world, const CommunicatorOptions& options = {});
  ///@{ The other object is moved-from afterwards.
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;
  ///@}
  /// Returns at once. Operations that are enqueued still run.
  ~Communicator() = default;

  [[nodiscard]] int rank() const;  ///< of this process, from 0
  [[nodiscard]] int size() const;  ///< how many processes
  /// CommunicatorOptions::name.
  [[nodiscard]] const char* name() const;
  /// The communicator of the processes that give the same `color`, ordered by `key`, then by rank. All processes have to call it. It waits
  /// for the other processes, but not for operations in streams. @throws errc::invalid_argument for a negative color
  [[nodiscard]] Communicator split(int color, int key = 0) const;

  /// Each element of `out` becomes the reduction of all processes' elements there in `in`, on every process.
  template <detail::DeviceSource In, detail::DeviceTarget Out>
  requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void all_reduce(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(detail::Verb::all_reduce, in, out, how, 0));
  }
  /// The same in place.
  template <detail::DeviceTarget InOut>
  requires detail::ReducibleRange<InOut>
  void all_reduce(StreamRef stream, InOut&& inout, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(detail::Verb::all_reduce, inout, inout, how, 0));
  }
  /// The same, but only `root` gets the result. Elsewhere `out` may be empty, and is not touched.
  template <detail::DeviceSource In, detail::DeviceTarget Out>
  requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void reduce(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum, int root = 0) const {
    run(stream, detail::reduction(detail::Verb::reduce, in, out, how, root));
  }
  /// `out` becomes this process's part of the reduction: as many elements as `out` has, from rank() * out.size() on.
  /// @throws errc::invalid_argument unless `in` is size() times as large as `out`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
  requires detail::SameElements<In, Out> && detail::ReducibleRange<In>
  void reduce_scatter(StreamRef stream, In&& in, Out&& out, Reduce how = Reduce::sum) const {
    run(stream, detail::reduction(detail::Verb::reduce_scatter, in, out, how, 0));
  }
  /// The elements of `root` are copied to all processes.
  template <detail::DeviceTarget InOut>
  void broadcast(StreamRef stream, InOut&& inout, int root = 0) const {
    run(stream, detail::movement(detail::Verb::broadcast, inout, inout, root));
  }
  /// `out` becomes the `in` of all processes, one after the other. @throws errc::invalid_argument unless `out` is size() times as large as
  /// `in`
  template <detail::DeviceSource In, detail::DeviceTarget Out>
  requires detail::SameElements<In, Out>
  void all_gather(StreamRef stream, In&& in, Out&& out) const { run(stream, detail::movement(detail::Verb::all_gather, in, out, 0)); }
  /// Part r of `in` goes to process r, and part r of `out` comes from process r. Both have size() parts of the same size.
  /// @throws errc::invalid_argument if the sizes differ, or cannot be divided so
  template <detail::DeviceSource In, detail::DeviceTarget Out>
  requires detail::SameElements<In, Out>
  void all_to_all(StreamRef stream, In&& in, Out&& out) const { run(stream, detail::movement(detail::Verb::all_to_all, in, out, 0)); }
  /// To process `to`, which has to receive as many elements.
  template <detail::DeviceSource In>
  void send(StreamRef stream, In&& in, int to) const {
    run(stream, detail::movement(detail::Verb::send, in, in, to));
  }
  /// From process `from`, which has to send as many elements.
  template <detail::DeviceTarget Out>
  void receive(StreamRef stream, Out&& out, int from) const {
    run(stream, detail::movement(detail::Verb::receive, out, out, from));
  }
  /// The stream goes on once all processes' streams have come to their barrier.
  void barrier(StreamRef stream) const;

  /// What group() gives to its function.
  class Group {
   public:
    /// As the communicator's own.
    template <detail::DeviceSource In>
    void send(In&& in, int to) {
      steps_.push_back(detail::movement(detail::Verb::send, in, in, to));
    }
    /// As the communicator's own.
    template <detail::DeviceTarget Out>
    void receive(Out&& out, int from) {
      steps_.push_back(detail::movement(detail::Verb::receive, out, out, from));
    }

   private:
    friend class Communicator;
    std::vector<detail::Transfer> steps_;
  };
  /// Calls `function(Group&)`, and enqueues what it sends and receives as one operation, in which nothing waits for the other: all
  /// processes may send first. If the function throws, nothing is enqueued.
  template <class F>
  void group(StreamRef stream, F&& function) const {
    Group all;
    std::forward<F>(function)(all);
    run_group(stream, all.steps_);
  }

  /// Throws the error that broke the communicator, if it is broken.
  void check() const;
  /// Breaks the communicator here. Operations that have not begun end without doing anything, and so do those that wait for other
  /// processes, if the communicator has a timeout. The others stay in MPI, which cannot be interrupted.
  void abort() noexcept;

  /// The MPI communicator in which the operations run, as MPI_Comm_c2f() gives it: not for operations of the program's own, which would
  /// meet them.
  [[nodiscard]] int mpi_communicator() const;

 private:
  explicit Communicator(std::shared_ptr<detail::CommunicatorState> state) noexcept : state_{std::move(state)} {}
  void run(StreamRef stream, const detail::Transfer& step) const;
  void run_group(StreamRef stream, const std::vector<detail::Transfer>& steps) const;

  std::shared_ptr<detail::CommunicatorState> state_;
};

}  // namespace runnel::inline RUNNEL_ABI
