// SPDX-License-Identifier: Apache-2.0
// Exits with 0 if the CUDA runtime reports a device.
#include <cuda_runtime_api.h>

int main() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 ? 0 : 1;
}
