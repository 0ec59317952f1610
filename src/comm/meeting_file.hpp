// SPDX-License-Identifier: Apache-2.0
/// Processes that share nothing but a folder exchange some bytes.
#pragma once

#include <runnel/config.hpp>

#include <chrono>
#include <cstddef>
#include <string>

namespace runnel::inline RUNNEL_ABI::detail {

/// Each process writes a file of its own, with a number that no other run has: PATH.1, PATH.2, ...
/// Process 0 answers with the file PATH, which repeats these numbers and holds the bytes. A process
/// that finds its own number there knows that the file is of this run. Files are written beside
/// their place and renamed, so that no process reads a part of one.
///
/// A process that has the bytes says so in its file, with process 0's number. Once all have,
/// process 0 removes PATH; on that each other process removes its own file. Files of a run that
/// died are overwritten.
class MeetingFile {
 public:
  MeetingFile(std::string path, int rank, int size, std::chrono::milliseconds patience)
      : path_{std::move(path)}, rank_{rank}, size_{size}, patience_{patience} {}
  /// @throws errc::timed_out if a process does not come; errc::not_permitted if the file cannot be
  /// written
  void broadcast(void* bytes, std::size_t count) const;

 private:
  [[nodiscard]] std::string path_of(int rank) const { return path_ + "." + std::to_string(rank); }
  void give(const void* bytes, std::size_t count) const;
  void take(void* bytes, std::size_t count) const;

  std::string path_;
  int rank_, size_;
  std::chrono::milliseconds patience_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
