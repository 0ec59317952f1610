// SPDX-License-Identifier: Apache-2.0
// Step 1 of the tutorial: everything in one stream. Each operation begins when the one before it is
// complete.
#include "../scale.hpp"

#include <vector>

using namespace runnel;

int main() {
  std::vector<float> numbers(4'000'000), result(numbers.size());
  fill_in(numbers);

  Stream s{{.name = "s"}};
  DeviceBuffer<float> in(numbers.size(), s), out(numbers.size(), s);
  copy(s, in, numbers);
  scale(s, in, out);
  copy(s, result, out);
  s.synchronize();  // the only line that waits
  return report(result);
}
