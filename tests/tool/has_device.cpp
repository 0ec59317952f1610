// SPDX-License-Identifier: Apache-2.0
// Ends with 0 where there is a device to run on, and with what Meson takes as a skip where there is none.
#include <runnel/device.hpp>

#include <cstdio>

int main() {
  if (runnel::Device::count() > 0) return 0;
  std::printf("skipped: %s\n", runnel::Device::why_none().c_str());
  return 77;
}
