// SPDX-License-Identifier: Apache-2.0
/// Broadcasts some bytes between processes that share only a folder.
#pragma once

#include <runnel/config.hpp>

#include <chrono>
#include <cstddef>
#include <string>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// Each process writes a file of its own, PATH.1, PATH.2, ..., with a number that is unique to the
/// run. Process 0 answers with the file PATH, which repeats these numbers and contains the bytes. A
/// process that finds its own number there knows that the file belongs to this run. Files are
/// written under a temporary name and renamed, so that no process reads an incomplete file.
///
/// A process that has read the bytes acknowledges them in its own file, with process 0's number.
/// After all acknowledgements process 0 removes PATH, and then each other process removes its own
/// file. Files of a run that has died are overwritten.
class RendezvousFile {
 public:
  RendezvousFile(std::string path, int rank, int size, std::chrono::milliseconds patience)
      : path_{std::move(path)}, rank_{rank}, size_{size}, patience_{patience} {}
  /// @throws errc::timed_out if a process does not take part; errc::not_permitted if the file
  /// cannot be written
  void broadcast(void* bytes, std::size_t count) const;

 private:
  [[nodiscard]] std::string path_of(int rank) const { return path_ + "." + std::to_string(rank); }
  void publish(const void* bytes, std::size_t count) const;
  void receive(void* bytes, std::size_t count) const;

  std::string path_;
  int rank_, size_;
  std::chrono::milliseconds patience_;
};

}}}  // namespace runnel::RUNNEL_ABI::detail
