// SPDX-License-Identifier: Apache-2.0
// Exits with 0 where the HIP runtime sees a device.
#include <hip/hip_runtime_api.h>

int main() {
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess && count > 0 ? 0 : 1;
}
