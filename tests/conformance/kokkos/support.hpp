// SPDX-License-Identifier: Apache-2.0
/// What the test cases share. The cases are compiled once for each execution space, which
/// RUNNEL_TEST_SPACE names. Kernels are functors, because nvcc does not accept KOKKOS_LAMBDA inside
/// a test.
#pragma once

#include <runnel/kokkos.hpp>

#include "../support.hpp"
#include "spin.hpp"

namespace kokkos_tests {
using namespace runnel;
using namespace std::chrono_literals;
using conformance::Clock, conformance::DeviceInts, conformance::Gate, conformance::Ints,
    conformance::PinnedInts;
using conformance::code_of, conformance::drop, conformance::eventually, conformance::held_by,
    conformance::nothing_thrown, conformance::on_thread, conformance::on_threads,
    conformance::patience, conformance::range, conformance::repeat;
using std::size_t, std::uint64_t;

using Space = RUNNEL_TEST_SPACE;
using Policy = Kokkos::RangePolicy<Space>;
/// A view in the memory of the execution space.
template <class T>
using Data = Kokkos::View<T, typename Space::memory_space>;
/// A view in pageable host memory.
template <class T, class Layout = Kokkos::LayoutRight>
using Host = Kokkos::View<T, Layout, Kokkos::HostSpace>;

/// x[i] = a * x[i] + b
struct Affine {
  Data<int*> x;
  int a, b;
  KOKKOS_FUNCTION void operator()(int i) const { x(i) = a * x(i) + b; }
};
inline void enqueue_affine(StreamRef stream, const Data<int*>& x, int a, int b) {
  kokkos::launch<Space>(stream, [=](const Space& exec) {
    Kokkos::parallel_for(Policy(exec, 0, x.extent_int(0)), Affine{x, a, b});
  });
}

/// Sets flags[1], then runs until flags[0] is set.
struct Hold {
  int* flags;
  KOKKOS_FUNCTION void operator()(int) const {
    // Volatile accesses are visible between host and device. Kokkos' atomics are for threads of the
    // device only.
    KOKKOS_IF_ON_HOST(
        (Kokkos::atomic_store(&flags[1], 1); while (Kokkos::atomic_load(&flags[0]) == 0){}))
    KOKKOS_IF_ON_DEVICE((volatile int* const seen = flags; seen[1] = 1; while (seen[0] == 0){}))
  }
};
/// Blocks a stream inside a kernel.
class KernelGate {
 public:
  explicit KernelGate(StreamRef stream) {
    flags_[0] = flags_[1] = 0;
    kokkos::launch<Space>(stream, [at = flags_.device_pointer()](const Space& exec) {
      Kokkos::parallel_for(Policy(exec, 0, 1), Hold{at});
    });
    flags_.record_stream(stream);
  }
  KernelGate(const KernelGate&) = delete;
  KernelGate& operator=(const KernelGate&) = delete;
  ~KernelGate() { open(); }
  void open() { Kokkos::atomic_store(&flags_[0], 1); }
  /// Waits until a kernel has reached the gate.
  bool reached() {
    return eventually([&] { return Kokkos::atomic_load(&flags_[1]) == 1; });
  }

 private:
  PinnedInts flags_{2};
};

inline void enqueue_spin(StreamRef stream, std::chrono::milliseconds time) {
  const long long nanoseconds = std::chrono::nanoseconds{time}.count();
  kokkos::launch<Space>(stream, [=](const Space& exec) {
    Kokkos::parallel_for(Policy(exec, 0, 1), Spin{nanoseconds});
  });
}

/// Copies all elements to the host and waits for the stream.
inline Ints values(StreamRef stream, const Data<int*>& x) {
  Ints all(x.extent(0));
  const Host<int*> host("values", x.extent(0));
  kokkos::copy_async(stream, host, x);
  stream.synchronize();
  for (size_t i : range(all.size())) all[i] = host(i);
  return all;
}

inline double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace kokkos_tests
