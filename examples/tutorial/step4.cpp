// SPDX-License-Identifier: Apache-2.0
// Step 4 of the tutorial: data larger than the device. overlap() does what step 3 does by hand, for
// any source and any size.
#include "larger.hpp"

#include "../scale.hpp"

using namespace runnel;

int main() {
  Numbers numbers(larger_than_device());
  const OverlapResult run =
      overlap(from_source<float>([&](std::span<float> to) { return numbers.read(to); }),
              to_sink<float>([&](std::span<const float> results) { numbers.check(results); }),
              [](StreamRef stream, DeviceSpan<const float> in, DeviceSpan<float> out) {
                scale(stream, in, out);
              });
  return numbers.report(run);
}
