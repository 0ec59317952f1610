// SPDX-License-Identifier: Apache-2.0
// A Kokkos application on a runnel stream.
#include <runnel/kokkos.hpp>
#include <runnel/runnel.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>

int main() {
  if (runnel::Device::count() == 0) {
    std::printf("%s: no device: %s\n", RUNNEL_BACKEND, runnel::Device::why_none().c_str());
    return 0;
  }
  const Kokkos::ScopeGuard kokkos;
  using Space = runnel::kokkos::HostSpace;
  const Kokkos::View<int*, Kokkos::HostSpace> values{"values", 1000};
  runnel::Stream stream;
  runnel::kokkos::launch<Space>(stream, [values](const Space& space) {
    Kokkos::parallel_for(
        Kokkos::RangePolicy<Space>{space, 0, 1000}, KOKKOS_LAMBDA(int i) { values(i) = 7; });
  });
  stream.synchronize();
  const bool right = values(0) == 7 && values(999) == 7;
  std::printf("%s: %s\n", RUNNEL_BACKEND, right ? "the same values came back" : "WRONG");
  return right ? 0 : 1;
}
