// SPDX-License-Identifier: Apache-2.0
// overlap() with kernels of Kokkos: chunks are copied in, computed and copied back at the same
// time. Each call of the function gets a chunk's stream and its memory on the device. launch() runs
// the kernels in the order of that stream, on a GPU and on host spaces.
//
// kokkos_overlap [numbers]
#include <runnel/kokkos.hpp>
#include <runnel/runnel.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace runnel;
using Space = kokkos::DefaultSpace;
using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::size_t>>;
template <class T>
using View = Kokkos::View<T, Space::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

struct Polynomial {
  View<const float*> x;
  View<float*> y;
  KOKKOS_FUNCTION static float of(float value) { return (value - 2) * value + 3; }
  KOKKOS_FUNCTION void operator()(std::size_t i) const { y(i) = of(x(i)); }
};
struct Sum {
  View<const float*> x;
  KOKKOS_FUNCTION void operator()(std::size_t i, double& sum) const { sum += x(i); }
};

/// y[i] = (x[i] - 2) * x[i] + 3
OverlapResult map(const std::vector<float>& x, std::vector<float>& y) {
  return overlap(x, y, [](StreamRef stream, DeviceSpan<const float> in, DeviceSpan<float> out) {
    kokkos::launch<Space>(stream, [=](const Space& exec) {
      Kokkos::parallel_for("polynomial", Policy(exec, 0, in.size()),
                           Polynomial{kokkos::view<Space>(in), kokkos::view<Space>(out)});
    });
  });
}

/// The sum of all elements: one result for each chunk comes back. The result of the reduction is a
/// view, so nothing waits for it.
double sum_of(const std::vector<float>& x, std::size_t chunk) {
  std::vector<double> sums(x.size() / chunk + 1);
  overlap(x, per_chunk(sums), {.chunk = chunk},
          [](StreamRef stream, DeviceSpan<const float> in, DeviceSpan<double> out) {
            kokkos::launch<Space>(stream, [=](const Space& exec) {
              Kokkos::parallel_reduce("sum", Policy(exec, 0, in.size()),
                                      Sum{kokkos::view<Space>(in)}, View<double>(out.data()));
            });
          });
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos{argc, argv};
  char* end = nullptr;
  const long long wanted = argc > 1 ? std::strtoll(argv[1], &end, 10) : 5'000'000;
  if (argc > 2 || wanted < 1 || (end != nullptr && *end != '\0')) {
    std::fprintf(stderr, "usage: kokkos_overlap [numbers >= 1]\n");
    return 2;
  }
  const auto count = static_cast<std::size_t>(wanted);
  std::vector<float> x(count), y(count);
  double expected = 0;
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(i % 1000);
    expected += x[i];
  }

  const OverlapResult run = map(x, y);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += y[i] != Polynomial::of(x[i]);
  // whole numbers, so the order of the additions does not matter
  const double sum = sum_of(x, count / 10 + 1);
  std::printf("%zu numbers in %zu chunks, %zu wrong; the sum is %.0f and has to be %.0f\n", count,
              run.chunks, wrong, sum, expected);
  return wrong == 0 && sum == expected ? 0 : 1;
}
