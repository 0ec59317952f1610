// SPDX-License-Identifier: Apache-2.0
/// A progress bar on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tool {

class Progress {
 public:
  /// Without a total, shows only a count. If standard error is not a terminal, prints nothing.
  explicit Progress(std::optional<std::uint64_t> total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Removes the bar.
  ~Progress();

  void update(std::uint64_t done);

 private:
  using clock = std::chrono::steady_clock;
  std::optional<std::uint64_t> total_;
  clock::time_point start_ = clock::now();
  clock::time_point drawn_{};
  bool shown_;
};

}  // namespace tool
