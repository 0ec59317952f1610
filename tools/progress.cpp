// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include "size.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace tool {

Progress::Progress(std::optional<std::uint64_t> total)
    : total_{total}, shown_{::isatty(STDERR_FILENO) == 1} {}

Progress::~Progress() {
  if (shown_ && drawn_ != clock::time_point{}) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::uint64_t done) {
  using namespace std::chrono_literals;
  const auto now = clock::now();
  if (!shown_ || now - drawn_ < 100ms) return;
  drawn_ = now;

  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done) / 1e9 / seconds : 0;
  if (total_) {
    constexpr int width = 40;
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(*total_));
    const std::string bar(static_cast<std::size_t>(share * width), '#');
    std::fprintf(stderr, "\r\033[K[%-*s] %3.0f %%  %s of %s, %.2f GB/s", width, bar.c_str(),
                 100 * share, to_text(done).c_str(), to_text(*total_).c_str(), rate);
  } else {
    std::fprintf(stderr, "\r\033[K%s, %.2f GB/s", to_text(done).c_str(), rate);
  }
  std::fflush(stderr);
}

}  // namespace tool
