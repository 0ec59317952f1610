// SPDX-License-Identifier: Apache-2.0
// A program that forgets a wait, unless WITH_WAIT is defined: what a user builds with
// -fsanitize=thread to find it.
#include <runnel/runnel.hpp>

#include <cstdio>
#include <vector>

int main() {
  const std::vector<int> values(1000, 7);
  std::vector<int> result(values.size());
  const runnel::Stream up, down;
  runnel::DeviceBuffer<int> x(values.size(), up);
  runnel::copy(up, x, values);  // one
#ifdef WITH_WAIT
  down.wait_stream(up);
#endif
  runnel::copy(down, result, x);  // other
  runnel::Device::current().synchronize();
  std::printf("%s: %s\n", RUNNEL_BACKEND, result.size() == values.size() ? "done" : "WRONG");
}
