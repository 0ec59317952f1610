// SPDX-License-Identifier: Apache-2.0
// One call that does what strategy_a.cpp and strategy_b.cpp do by hand.
#include "scale.hpp"

#include <vector>

using namespace runnel;

int main() {
  std::vector<float> numbers(10'000'000), result(numbers.size());
  fill_in(numbers);

  overlap(numbers, result, {.chunk = 1'000'000},
          [](StreamRef stream, DeviceSpan<const float> in, DeviceSpan<float> out) {
            scale(stream, in, out);  // only enqueues
          });
  return report(result);
}
