// SPDX-License-Identifier: Apache-2.0
/// What a process uses at a moment, for finding out whether it grows.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <runnel/runnel.hpp>
#include <string>

namespace load {

using std::size_t, std::uint32_t, std::uint64_t;

struct Figures {
  long resident_kib = 0;  ///< memory that the process has touched
  long threads = 0;
  long descriptors = 0;
  runnel::LiveObjects live{};
};

/// Reads the figures from the system and from the library.
inline Figures figures() {
  Figures now;
  now.live = runnel::live_objects();
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) now.resident_kib = std::strtol(line.c_str() + 6, nullptr, 10);
    if (line.rfind("Threads:", 0) == 0) now.threads = std::strtol(line.c_str() + 8, nullptr, 10);
  }
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator{"/proc/self/fd"})
    ++now.descriptors;
  --now.descriptors;  // that of the iterator
  return now;
}

inline void print_heading() {
  std::printf("%12s %8s %12s %9s %7s %4s %8s %8s %8s %8s %8s %9s\n", "operations", "seconds",
              "each second", "MiB", "threads", "fds", "streams", "events", "pooled", "pinned",
              "device", "functions");
}
inline void print(long operations, double seconds, const Figures& now) {
  std::printf("%12ld %8.1f %12.0f %9.1f %7ld %4ld %8zu %8zu %8zu %8zu %8zu %9zu\n", operations,
              seconds, seconds > 0 ? static_cast<double>(operations) / seconds : 0.0,
              static_cast<double>(now.resident_kib) / 1024, now.threads, now.descriptors,
              now.live.streams, now.live.events, now.live.pooled_events, now.live.pinned_blocks,
              now.live.device_blocks, now.live.host_functions);
  std::fflush(stdout);
}

/// Counts what is wrong, and prints it.
class Verdict {
 public:
  void require(bool holds, const std::string& what) {
    if (holds) return;
    ++wrong_;
    std::printf("WRONG: %s\n", what.c_str());
    std::fflush(stdout);
  }
  /// Requires: all objects of the program are destroyed.
  void require_nothing_alive() {
    const runnel::LiveObjects left = runnel::live_objects();
    require(left.streams == 0 && left.events == 0 && left.pinned_blocks == 0 &&
                left.device_blocks == 0 && left.host_functions == 0,
            "objects are alive at the end: " + std::to_string(left.streams) + " streams, " +
                std::to_string(left.events) + " events, " + std::to_string(left.pinned_blocks) +
                " pinned and " + std::to_string(left.device_blocks) + " device blocks, " +
                std::to_string(left.host_functions) + " functions");
  }
  int status() const { return wrong_ == 0 ? 0 : 1; }

 private:
  int wrong_ = 0;
};

}  // namespace load
