// SPDX-License-Identifier: Apache-2.0
// What the calls of the Kokkos interop cost the calling thread, compared with Kokkos' own
// functions. Medians, on the default space.
#include <runnel/kokkos.hpp>
#include <runnel/runnel.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <vector>

#include "spin.hpp"

using namespace runnel;
using kokkos_tests::Spin;
using Space = kokkos::DefaultSpace;
using Policy = Kokkos::RangePolicy<Space>;

/// Nanoseconds of one call of `f`: the median of `rounds` rounds with `calls` calls each. Each
/// round begins with `before`, which is not timed.
template <class F, class Before>
double cost(int rounds, int calls, F f, Before before) {
  std::vector<double> all;
  for (int i = 0; i < rounds; ++i) {
    before();
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < calls; ++k) f();
    all.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() /
        calls);
  }
  std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
  return all[static_cast<std::size_t>(rounds / 2)];
}
template <class F>
double cost(int rounds, int calls, F f) {
  return cost(rounds, calls, f, [] {});
}
void row(const char* what, double nanoseconds) {
  std::printf("%-64s %12.1f ns\n", what, nanoseconds);
}

struct Empty {
  KOKKOS_FUNCTION void operator()(int) const {}
};
constexpr long long long_kernel = 50'000'000;

void measure_calls(const Stream& s) {
  const Stream t;
  const Space exec = kokkos::fenced_exec_space<Space>(s),
              other = kokkos::fenced_exec_space<Space>(t);
  row("fenced_exec_space(stream), again", cost(9, 100'000, [&] {
        const Space& found = kokkos::fenced_exec_space<Space>(s);
        asm volatile("" : : "r"(&found) : "memory");
      }));
  row("copy of an instance", cost(9, 100'000, [&] { const Space copied = exec; }));
  {
    std::vector<std::optional<Stream>> fresh(9);
    std::size_t next = 0;
    row("fenced_exec_space(stream), first",
        cost(
            9, 1, [&] { static_cast<void>(kokkos::fenced_exec_space<Space>(*fresh[next++])); },
            [&] { fresh[next].emplace(); }));
  }
  row("launch of an empty kernel", cost(
                                       9, 200,
                                       [&] {
                                         kokkos::launch<Space>(s, [](const Space& on) {
                                           Kokkos::parallel_for(Policy(on, 0, 1), Empty{});
                                         });
                                       },
                                       [&] { s.synchronize(); }));
  s.synchronize();
  row("wait(instance, instance)", cost(9, 200, [&] { kokkos::wait(exec, other); }));
  row("as_stream(instance of a stream)",
      cost(9, 200, [&] { static_cast<void>(kokkos::as_stream(exec)); }));
  const Space own{};
  row("as_stream(Kokkos' own instance)",
      cost(9, 50, [&] { static_cast<void>(kokkos::as_stream(own)); }));
}

/// Blocks the stream with a kernel of 50 ms, once nothing else runs.
void spin(const Stream& s) {
  Kokkos::fence();
  s.synchronize();
  kokkos::launch<Space>(
      s, [](const Space& on) { Kokkos::parallel_for(Policy(on, 0, 1), Spin{long_kernel}); });
}

/// Copies behind a long kernel: how long the calls block.
class Copies {
 public:
  explicit Copies(const Stream& s) : s_{s} {
    for (std::size_t i = 0; i < n; ++i) host_(i) = static_cast<double>(i);
    round_trip();  // makes the staging ring, which later copies use
  }

  void measure(std::size_t bytes) const {
    const Space exec = kokkos::fenced_exec_space<Space>(s_);
    const auto part = [&](const auto& view) {
      return Kokkos::subview(view, std::pair{std::size_t{0}, bytes / sizeof(double)});
    };
    const auto before = [&] { spin(s_); };
    std::printf("behind a kernel of 50 ms, pageable host memory, %zu KiB:\n", bytes >> 10);
    row("  copy_async to the device",
        cost(7, 1, [&] { kokkos::copy_async(s_, part(x_), part(host_)); }, before));
    row("  copy_async from the device",
        cost(7, 1, [&] { kokkos::copy_async(s_, part(back_), part(x_)); }, before));
    if constexpr (kokkos::device_space<Space>) {
      row("  Kokkos::deep_copy(exec, ...) to the device",
          cost(3, 1, [&] { Kokkos::deep_copy(exec, part(x_), part(host_)); }, before));
      row("  Kokkos::deep_copy(exec, ...) from the device",
          cost(3, 1, [&] { Kokkos::deep_copy(exec, part(back_), part(x_)); }, before));
    }
  }

  [[nodiscard]] bool bytes_are_right() const {
    s_.synchronize();
    Kokkos::deep_copy(back_, 0);
    spin(s_);
    round_trip();
    for (std::size_t i = 0; i < n; ++i)
      if (back_(i) != host_(i)) return false;
    return true;
  }

  static constexpr std::size_t n = std::size_t{16} << 20;

 private:
  void round_trip() const {
    kokkos::copy_async(s_, x_, host_);
    kokkos::copy_async(s_, back_, x_);
    s_.synchronize();
  }

  const Stream& s_;
  Kokkos::View<double*, Kokkos::HostSpace> host_{"host", n}, back_{"back", n};
  Kokkos::View<double*, Space::memory_space> x_{"x", n};
};

void measure_destruction(const Stream& busy) {
  std::optional<Stream> dying;
  const auto with_instance = [&] {
    dying.emplace();
    static_cast<void>(kokkos::fenced_exec_space<Space>(*dying));
    spin(busy);
  };
  row("destroying a stream with an instance, another runs 50 ms",
      cost(5, 1, [&] { dying.reset(); }, with_instance));
  busy.synchronize();
}

int costs() {
  const Stream s;
  measure_calls(s);
  const Copies copies{s};
  for (const std::size_t bytes : {std::size_t{8} << 10, std::size_t{1} << 20, std::size_t{16} << 20,
                                  Copies::n * sizeof(double)})
    copies.measure(bytes);
  if (!copies.bytes_are_right()) return 1;
  std::puts("the bytes are right");
  measure_destruction(s);
  return 0;
}

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos{argc, argv};
  std::printf("Kokkos %d, %s on the backend %s\n", KOKKOS_VERSION, Space::name(), RUNNEL_BACKEND);
  return costs();
}
