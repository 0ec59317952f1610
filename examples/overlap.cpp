// SPDX-License-Identifier: Apache-2.0
// What strategy_a.cpp and strategy_b.cpp do by hand, by one call.
#include "scale.hpp"

#include <vector>

using namespace runnel;

int main() {
  std::vector<float> numbers(10'000'000), result(numbers.size());
  fill_in(numbers);

  overlap(numbers, result, {.chunk = 1'000'000}, [](StreamRef stream, DeviceSpan<const float> in, DeviceSpan<float> out) {
    scale(stream, in, out);  // enqueue, and return
  });
  return report(result);
}
