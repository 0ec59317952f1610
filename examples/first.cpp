// SPDX-License-Identifier: Apache-2.0
#include <runnel/runnel.hpp>

#include <iostream>
#include <vector>

int main() {
  std::vector<float> values(1 << 20, 2.5F), result(values.size());

  runnel::Stream up, down;                           // two lines of work
  runnel::DeviceBuffer<float> x(values.size(), up);  // allocated in stream order
  runnel::copy(up, x, values);                       // from any host memory; returns at once
  down.wait_stream(up);                              // what follows in `down` comes after
  runnel::copy(down, result, x);
  down.synchronize();

  std::cout << (result == values ? "the same values came back\n" : "something is wrong\n");
  return result == values ? 0 : 1;
}
