// SPDX-License-Identifier: Apache-2.0
/// The processes that work on a command together. The command `runnel` works alone
/// (processes_one.cpp). Where mpirun has started several, it becomes the program runnel-mpi for the
/// commands that can share their work (processes_mpi.cpp).
#pragma once

#include <runnel/device.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tool {

class Processes {
 public:
  /// Requires: `argv` are the arguments of main().
  explicit Processes(char** argv);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  [[nodiscard]] int rank() const noexcept;        ///< of this process, from 0
  [[nodiscard]] int size() const noexcept;        ///< how many processes
  [[nodiscard]] int local_rank() const noexcept;  ///< of this process among those of its machine

  /// Calls `work` and returns its result. If it throws in one of several processes, all of them end
  /// at once, and the first one in which it threw prints why. One process alone throws the
  /// exception.
  int together(const std::function<int()>& work);
  /// What each process gives, in their order, by way of the device. All processes call it, within
  /// together().
  template <class T>
  [[nodiscard]] std::vector<T> gather(runnel::Device device, const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    gather_bytes(device, &mine, all.data(), sizeof mine);
    return all;
  }

  /// Begins to show the progress of all processes, by process 0. Without a total shows only a
  /// count. `always`: also if the standard error is not a terminal.
  void show_progress(std::optional<std::uint64_t> total, bool always);
  /// How many bytes this process has done.
  void report(std::uint64_t bytes);
  void hide_progress();

 private:
  void gather_bytes(runnel::Device device, const void* mine, void* all, std::size_t bytes);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tool
