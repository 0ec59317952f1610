// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

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

void launch_note_multiprocessors(runnel::StreamRef stream, int* noted) {
  stream.launch_host_func([=] { noted[0] = 1; });
}

}  // namespace kernels
