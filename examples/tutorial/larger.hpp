// SPDX-License-Identifier: Apache-2.0
// Data that is never in memory as a whole: a source that makes numbers, and a sink that checks
// results.
#pragma once

#include <runnel/runnel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>

/// Twice as many numbers as the device has room for, or 256 MiB of them if the device is so large
/// that twice as many would take long.
inline std::size_t larger_than_device() {
  const std::size_t bytes = runnel::Device::current().memory_info().total;
  return std::min<std::size_t>(2 * bytes, std::size_t{256} << 20) / sizeof(float);
}

class Numbers {
 public:
  explicit Numbers(std::size_t count) : count_{count} {}
  /// Fills in the next numbers, and returns how many there were; 0 ends the input.
  std::size_t read(std::span<float> to) {
    const std::size_t here = std::min(to.size(), count_ - made_);
    for (std::size_t i = 0; i < here; ++i) to[i] = static_cast<float>((made_ + i) % 1000);
    made_ += here;
    return here;
  }
  /// Takes the next results.
  void check(std::span<const float> results) {
    for (const float result : results)
      is_right_ = is_right_ && result == 2 * static_cast<float>(checked_++ % 1000) + 1;
  }
  /// Prints what was seen. Returns the exit status of the program.
  [[nodiscard]] int report(const runnel::OverlapResult& run) const {
    const bool good = is_right_ && checked_ == count_;
    std::printf(
        "%s: %zu MiB in %zu chunks, at most %zu on the device at a time; the device has %zu MiB\n",
        good ? "right" : "WRONG", checked_ * sizeof(float) >> 20, run.chunks, run.in_flight,
        runnel::Device::current().memory_info().total >> 20);
    return good ? 0 : 1;
  }

 private:
  std::size_t count_, made_ = 0, checked_ = 0;
  bool is_right_ = true;
};
