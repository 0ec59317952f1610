// SPDX-License-Identifier: Apache-2.0
/// The processes that execute a command together. The program `runnel` executes it alone
/// (processes_one.cpp). If mpirun has started several processes, `runnel` executes the program
/// runnel-mpi instead, for the commands that can share their work (processes_mpi.cpp).
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

  [[nodiscard]] int rank() const noexcept;        ///< of this process, counted from 0
  [[nodiscard]] int size() const noexcept;        ///< the number of processes
  [[nodiscard]] int local_rank() const noexcept;  ///< the rank among the processes of this machine

  /// Calls `work` and returns its result. If it throws in one of several processes, all of them
  /// terminate, and the process with the lowest rank that threw prints the reason. A single process
  /// throws the exception.
  int together(const std::function<int()>& work);
  /// Returns the `mine` of all processes, in the order of their ranks. The data goes through the
  /// device. All processes must call it, within together().
  template <class T>
  [[nodiscard]] std::vector<T> gather(runnel::Device device, const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    gather_bytes(device, &mine, all.data(), sizeof mine);
    return all;
  }

  /// Starts to show the progress of all processes, in process 0. Without a total it shows only a
  /// count. `always`: also if standard error is not a terminal.
  void show_progress(std::optional<std::uint64_t> total, bool always);
  /// Reports the number of bytes that this process has processed.
  void report(std::uint64_t bytes);
  void hide_progress();

 private:
  void gather_bytes(runnel::Device device, const void* mine, void* all, std::size_t bytes);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tool
