// SPDX-License-Identifier: Apache-2.0
// Exits with 0 where the CUDA runtime sees a device.
#include <cuda_runtime_api.h>

int main() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 ? 0 : 1;
}
