// SPDX-License-Identifier: Apache-2.0
// Step 5 of the tutorial: the same with a kernel of Kokkos. On a GPU the kernel is enqueued; on a
// host space the stream's threads run it.
#include "larger.hpp"

#include <runnel/kokkos.hpp>

using namespace runnel;
using Space = kokkos::DefaultSpace;

struct Scale {
  const float* in;
  float* out;
  KOKKOS_FUNCTION void operator()(std::size_t i) const { out[i] = 2 * in[i] + 1; }
};

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos{argc, argv};
  Numbers numbers(larger_than_device());
  const OverlapResult run = overlap(
      from_source<float>([&](std::span<float> to) { return numbers.read(to); }),
      to_sink<float>([&](std::span<const float> results) { numbers.check(results); }),
      [](StreamRef stream, DeviceSpan<const float> in, DeviceSpan<float> out) {
        kokkos::launch<Space>(stream, [=](const Space& exec) {
          using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::size_t>>;
          Kokkos::parallel_for("scale", Policy(exec, 0, in.size()), Scale{in.data(), out.data()});
        });
      });
  return numbers.report(run);
}
