// SPDX-License-Identifier: Apache-2.0
// Exits with 0 if the HIP runtime reports a device.
#include <hip/hip_runtime_api.h>

int main() {
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess && count > 0 ? 0 : 1;
}
