// SPDX-License-Identifier: Apache-2.0
// An application that uses Kokkos and runnel: copy, kernel, copy, in the order of a stream.
#include <runnel/kokkos.hpp>
#include <runnel/runnel.hpp>

#include <cstdio>

using Space = runnel::kokkos::DefaultSpace;

struct Square {
  Kokkos::View<int*, Space::memory_space> x;
  KOKKOS_FUNCTION void operator()(int i) const { x(i) = i * x(i); }
};

bool same_values() {
  constexpr int n = 100000;
  const Kokkos::View<int*, Kokkos::HostSpace> from("from", n), to("to", n);
  const Kokkos::View<int*, Space::memory_space> x("x", n);
  Kokkos::deep_copy(from, 3);
  const runnel::Stream stream;
  runnel::kokkos::copy_async(stream, x, from);
  runnel::kokkos::launch(stream, [=](const Space& exec) {
    Kokkos::parallel_for(Kokkos::RangePolicy<Space>(exec, 0, n), Square{x});
  });
  runnel::kokkos::copy_async(stream, to, x);
  stream.synchronize();
  for (int i = 0; i < n; ++i)
    if (to(i) != 3 * i) return false;
  return true;
}

int main(int argc, char** argv) {
  if (runnel::Device::count() == 0) {
    std::printf("%s: no device: %s\n", RUNNEL_BACKEND, runnel::Device::why_no_device().c_str());
    return 0;
  }
  const Kokkos::ScopeGuard kokkos{argc, argv};
  const bool right = same_values();
  std::printf("%s: %s\n", RUNNEL_BACKEND, right ? "the same values came back" : "WRONG");
  return right ? 0 : 1;
}
