// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

namespace {

/// Kokkos' global fence leaves that device current which has an instance and the largest number, so
/// a case would begin on another device than its views are on.
class OneDevice : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { device_.use(); }
  const runnel::Device device_ = runnel::Device::current();
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (runnel::Device::count() == 0) {
    std::printf("skipped: %s\n", runnel::Device::why_no_device().c_str());
    return 77;
  }
  const Kokkos::ScopeGuard kokkos{argc, argv};
  std::printf("Kokkos %d, %s on the backend %s\n", KOKKOS_VERSION, RUNNEL_TEST_SPACE::name(),
              RUNNEL_BACKEND);
  testing::UnitTest::GetInstance()->listeners().Append(new OneDevice);
  return RUN_ALL_TESTS();
}
