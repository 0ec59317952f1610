// SPDX-License-Identifier: Apache-2.0
/// Programs of a user, some with a race, each a function. Above the function stands what is right
/// or wrong in it. The comment behind its name says whether ThreadSanitizer must report a race. The
/// comments `// one` and `// other` mark the two lines that the report must name, one in each of
/// its two stacks; `// both` marks a line that must be in both. run.py reads these comments.
#pragma once

#include <cstddef>
#include <runnel/runnel.hpp>
#include <span>
#include <vector>

namespace races {

struct Case {
  const char* name;
  void (*run)();
};
#define CASE(name) {#name, name}
std::span<const Case> order_cases();
std::span<const Case> memory_cases();

inline constexpr std::size_t count = 256;
/// 256 times 1, unless others are given.
struct Values : std::vector<int> {
  using vector::vector;
  Values() : vector(count, 1) {}
};

/// A kernel, as far as the host backend has one: adds 1 to each value.
inline void increment(runnel::StreamRef stream, int* values, std::size_t n = count) {
  stream.launch_host_func([=] {
    for (std::size_t i = 0; i < n; ++i) ++values[i];
  });
}
inline void increment(runnel::StreamRef stream, Values& values) {
  increment(stream, values.data());
}
inline void increment(runnel::StreamRef stream, runnel::DeviceSpan<int> values) {
  increment(stream, values.data(), values.size());
}

inline void wait_for_device() { runnel::Device::current().synchronize(); }

}  // namespace races
