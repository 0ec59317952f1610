// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (runnel::Device::count() == 0) {
    std::printf("skipped: %s\n", runnel::Device::why_no_device().c_str());
    return 77;
  }
  const Kokkos::ScopeGuard kokkos{argc, argv};
  std::printf("Kokkos %d, %s on the backend %s\n", KOKKOS_VERSION, RUNNEL_TEST_SPACE::name(), RUNNEL_BACKEND);
  return RUN_ALL_TESTS();
}
