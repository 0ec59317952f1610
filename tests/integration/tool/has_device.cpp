// SPDX-License-Identifier: Apache-2.0
// Exits with 0 if there is a device, and with 77, which Meson takes as a skip, if there is none.
#include <runnel/device.hpp>

#include <cstdio>

int main() {
  if (runnel::Device::count() > 0) return 0;
  std::printf("skipped: %s\n", runnel::Device::why_no_device().c_str());
  return 77;
}
