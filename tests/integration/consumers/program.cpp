// SPDX-License-Identifier: Apache-2.0
// The program that each consumer builds. It copies values to the device and back, catches an
// exception, and prints the result in one line.
#include <runnel/runnel.hpp>

#include <cstdio>
#include <vector>

int main() {
  if (runnel::Device::count() == 0) {
    std::printf("%s: no device: %s\n", RUNNEL_BACKEND, runnel::Device::why_no_device().c_str());
    return 0;
  }
  bool caught = false;
  try {
    runnel::Stream nowhere{runnel::Device{1000}};
  } catch (const runnel::Error& error) {
    caught = error.code() == runnel::errc::invalid_device;
  }
  const std::vector<int> values(100000, 7);
  std::vector<int> result(values.size());
  runnel::Stream stream;
  runnel::DeviceBuffer<int> x(values.size(), stream);
  runnel::copy(stream, x, values);
  runnel::copy(stream, result, x);
  stream.synchronize();
  std::printf("%s: %s\n", RUNNEL_BACKEND,
              caught && result == values ? "the same values came back" : "WRONG");
  return caught && result == values ? 0 : 1;
}
