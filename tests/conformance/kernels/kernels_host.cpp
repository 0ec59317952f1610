// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <atomic>

namespace kernels {

void launch_double_and_add(runnel::StreamRef stream, int* numbers, std::size_t count) {
  stream.launch_host_func([=] {
    for (std::size_t i = 0; i < count; ++i) double_and_add(numbers, i);
  });
}

void launch_busy(runnel::StreamRef stream, std::chrono::microseconds time, int* flag) {
  stream.launch_host_func([=] {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
    }
    *flag = 1;
  });
}

void launch_meet(runnel::StreamRef stream, int* mine, const int* theirs, int* met,
                 std::chrono::seconds limit) {
  stream.launch_host_func([=] {
    std::atomic_ref{*mine}.store(1);
    const std::atomic_ref their_flag{const_cast<int&>(*theirs)};
    const auto end = std::chrono::steady_clock::now() + limit;
    while (their_flag.load() == 0 && std::chrono::steady_clock::now() < end) {
    }
    *met = their_flag.load();
  });
}

void launch_note_multiprocessors(runnel::StreamRef stream, int* noted) {
  stream.launch_host_func([=] { noted[0] = 1; });
}

void launch_too_large(runnel::StreamRef) {}

}  // namespace kernels
