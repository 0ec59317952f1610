// SPDX-License-Identifier: Apache-2.0
// A program whose kernel is compiled by nvcc on a machine that has it, and is a host function
// elsewhere, as in CI. docs/own-kernels.md explains it.
#include <cstdio>
#include <vector>

#include "scale.hpp"

using namespace runnel;

int main() {
  if (Device::count() == 0) {
    std::printf("%s: no device: %s\n", RUNNEL_BACKEND, Device::why_no_device().c_str());
    return 0;
  }
  std::vector<float> values(1 << 20, 2.0F);
  Stream stream;
  DeviceBuffer<float> x(values.size(), stream);
  copy(stream, x, values);
  scale(stream, x, 21.0F);
  copy(stream, values, x);
  stream.synchronize();
  const bool right = values.front() == 42.0F && values.back() == 42.0F;
  std::printf("%s: %s\n", RUNNEL_BACKEND, right ? "each number was scaled" : "WRONG");
  return right ? 0 : 1;
}
