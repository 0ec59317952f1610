// SPDX-License-Identifier: Apache-2.0
// Heat spreads over a grid that is cut into slabs, as if each slab belonged to a rank of a cluster.
// In each step the outermost rows of a slab are copied through host memory to the neighbours, which
// keep copies of these rows. With runnel the exchange overlaps the kernel of the interior. With
// plain Kokkos and fences it comes after the kernel.
//
// kokkos_heat [slabs [rows of a slab [columns [steps]]]]
#include <runnel/kokkos.hpp>
#include <runnel/runnel.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

using namespace runnel;
using Space = kokkos::DefaultSpace;
// rows are contiguous
using Grid = Kokkos::View<double**, Kokkos::LayoutRight, Space::memory_space>;
using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::size_t>>;

struct Size {
  std::size_t slabs, rows, columns;
  int steps;
};

/// One step for whole rows. The outermost columns do not change.
struct Diffuse {
  Grid from, to;
  std::size_t first_row, columns;
  KOKKOS_FUNCTION static double next(double here, double up, double down, double left,
                                     double right) {
    return here + 0.2 * (up + down + left + right - 4 * here);
  }
  KOKKOS_FUNCTION void operator()(std::size_t index) const {
    const std::size_t i = first_row + index / columns, j = index % columns;
    to(i, j) = j == 0 || j == columns - 1 ? from(i, j)
                                          : next(from(i, j), from(i - 1, j), from(i + 1, j),
                                                 from(i, j - 1), from(i, j + 1));
  }
};
void diffuse(const Space& exec, const Grid& from, const Grid& to, std::size_t first_row,
             std::size_t rows) {
  const std::size_t columns = from.extent(1);
  Kokkos::parallel_for("diffuse", Policy(exec, 0, rows * columns),
                       Diffuse{from, to, first_row, columns});
}

/// Row 0 and row `rows + 1` of a slab are copies of the neighbours' rows, or the edge of the whole
/// grid.
struct Slab {
  Grid now, next;
};
auto row(const Grid& grid, std::size_t i) { return Kokkos::subview(grid, i, Kokkos::ALL); }

double start_value(std::size_t i, std::size_t j) {
  return static_cast<double>((i * 31 + j * 17) % 101);
}

std::vector<Slab> make_slabs(Size size) {
  std::vector<Slab> slabs;
  Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> host("host", size.rows + 2,
                                                                      size.columns);
  for (std::size_t s = 0; s < size.slabs; ++s) {
    for (std::size_t i = 0; i < size.rows + 2; ++i)
      for (std::size_t j = 0; j < size.columns; ++j) host(i, j) = start_value(s * size.rows + i, j);
    Slab& slab = slabs.emplace_back(
        Slab{Grid("now", size.rows + 2, size.columns), Grid("next", size.rows + 2, size.columns)});
    Kokkos::deep_copy(slab.now, host);
    Kokkos::deep_copy(slab.next, host);
  }
  return slabs;
}

/// The parts of a step that are executed. The example also measures each part alone.
struct Parts {
  bool compute = true, exchange = true;
};

class WithRunnel {
 public:
  explicit WithRunnel(Size size) : size_{size}, buffer_{2 * size.slabs * size.columns} {
    kokkos::set_host_threads<Space>(
        interior_, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  }

  void step(std::vector<Slab>& slabs, Parts parts) {
    // First compute the rows that the neighbours need. They depend on the rows that the last step
    // received, and on the last step's interior.
    edges_.wait_stream(up_);
    edges_.wait_stream(interior_);
    // Each launch captures copies of the views, because on a host space the function is called
    // later.
    if (parts.compute)
      for (const Slab& slab : slabs)
        kokkos::launch<Space>(edges_, [slab, rows = size_.rows](const Space& exec) {
          for (const std::size_t i : {std::size_t{1}, rows})
            diffuse(exec, slab.now, slab.next, i, 1);
        });
    interior_.wait_event(edges_.record_event());
    if (parts.compute)
      for (const Slab& slab : slabs)
        kokkos::launch<Space>(interior_, [slab, rows = size_.rows](const Space& exec) {
          diffuse(exec, slab.now, slab.next, 2, rows - 2);
        });
    if (parts.exchange)
      for (std::size_t s = 0; s + 1 < size_.slabs; ++s) {
        send(row(slabs[s].next, size_.rows), row(slabs[s + 1].next, 0), 2 * s);
        send(row(slabs[s + 1].next, 1), row(slabs[s].next, size_.rows + 1), 2 * s + 1);
      }
  }
  void synchronize() {
    for (const Stream* each : {&interior_, &edges_, &up_}) each->synchronize();
  }

 private:
  /// Copies to the host on one stream and to the device on another, so that both directions run at
  /// the same time.
  template <class Row>
  void send(const Row& from, const Row& to, std::size_t place) {
    const std::size_t columns = from.extent(0);
    const kokkos::pinned_view<double*> through(buffer_.data() + place * columns, columns);
    kokkos::copy_async(edges_, through, from);
    up_.wait_stream(edges_);
    kokkos::copy_async(up_, to, through);
  }

  Size size_;
  PinnedBuffer<double> buffer_;
  Stream interior_, edges_{{.priority = Priority::high}}, up_{{.priority = Priority::high}};
};

class WithFences {
 public:
  explicit WithFences(Size size) : size_{size}, buffer_("buffer", size.columns) {}

  void step(std::vector<Slab>& slabs, Parts) {
    const Space exec;
    for (const Slab& slab : slabs) diffuse(exec, slab.now, slab.next, 1, size_.rows);
    exec.fence();
    for (std::size_t s = 0; s + 1 < size_.slabs; ++s) {
      send(exec, row(slabs[s].next, size_.rows), row(slabs[s + 1].next, 0));
      send(exec, row(slabs[s + 1].next, 1), row(slabs[s].next, size_.rows + 1));
    }
    exec.fence();
  }
  void synchronize() { Kokkos::fence(); }

 private:
  template <class Row>
  void send(const Space& exec, const Row& from, const Row& to) {
    Kokkos::deep_copy(exec, buffer_, from);
    Kokkos::deep_copy(exec, to, buffer_);
  }

  Size size_;
  Kokkos::View<double*, Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace> buffer_;
};

/// Runs all steps. Returns the milliseconds of one step.
template <class Solver>
double run(Solver& solver, std::vector<Slab>& slabs, int steps, Parts parts = {}) {
  solver.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < steps; ++k) {
    solver.step(slabs, parts);
    for (Slab& slab : slabs) std::swap(slab.now, slab.next);
  }
  solver.synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
             .count() /
         steps;
}

/// The largest difference to a serial computation on the whole grid.
double difference(const std::vector<Slab>& slabs, Size size, int steps) {
  const std::size_t rows = size.slabs * size.rows + 2, columns = size.columns;
  const auto at = [&](std::size_t i, std::size_t j) { return i * columns + j; };
  std::vector<double> now(at(rows, 0));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) now[at(i, j)] = start_value(i, j);
  std::vector<double> next = now;
  for (int k = 0; k < steps; ++k) {
    for (std::size_t i = 1; i < rows - 1; ++i)
      for (std::size_t j = 1; j < columns - 1; ++j)
        next[at(i, j)] = Diffuse::next(now[at(i, j)], now[at(i - 1, j)], now[at(i + 1, j)],
                                       now[at(i, j - 1)], now[at(i, j + 1)]);
    std::swap(now, next);
  }
  double largest = 0;
  for (std::size_t s = 0; s < size.slabs; ++s) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, slabs[s].now);
    for (std::size_t i = 1; i <= size.rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        largest = std::max(largest, std::abs(host(i, j) - now[at(s * size.rows + i, j)]));
  }
  return largest;
}

int heat(Size size) {
  std::printf("%zu slabs of %zu x %zu, %d steps, %s on the backend %s\n", size.slabs, size.rows,
              size.columns, size.steps, Space::name(), RUNNEL_BACKEND);
  WithRunnel with_runnel{size};
  WithFences with_fences{size};
  constexpr int checked = 4;
  for (const bool fences : {false, true}) {
    std::vector<Slab> slabs = make_slabs(size);
    fences ? run(with_fences, slabs, checked) : run(with_runnel, slabs, checked);
    const double wrong = difference(slabs, size, checked);
    std::printf("%s: %g from the serial result after %d steps\n", fences ? "fences" : "runnel",
                wrong, checked);
    if (!(wrong < 1e-9)) return 1;
  }

  std::vector<Slab> slabs = make_slabs(size);
  const double compute = run(with_runnel, slabs, size.steps, {.exchange = false});
  const double exchange = run(with_runnel, slabs, size.steps, {.compute = false});
  const double both = run(with_runnel, slabs, size.steps);
  const double fenced = run(with_fences, slabs, size.steps);
  const double hidden = (compute + exchange - both) / std::min(compute, exchange);
  std::printf(
      "a step: computing %.3f ms, exchange %.3f ms, both %.3f ms: %.0f %% of what can be was "
      "hidden\n",
      compute, exchange, both, 100 * std::clamp(hidden, 0.0, 1.0));
  std::printf("with fences %.3f ms: runnel is %.2f times as fast\n", fenced, fenced / both);
  return 0;
}

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos{argc, argv};
  // The size for a GPU makes computing and exchange take about the same time on a GPU of 2024.
  Size size = kokkos::device_space<Space> ? Size{4, 64, 1 << 20, 100} : Size{4, 32, 1 << 13, 20};
  std::size_t* const numbers[] = {&size.slabs, &size.rows, &size.columns};
  for (int i = 1; i < std::min(argc, 4); ++i)
    *numbers[i - 1] = static_cast<std::size_t>(std::max(0, std::atoi(argv[i])));
  if (argc > 4) size.steps = std::atoi(argv[4]);
  if (size.slabs < 2 || size.rows < 3 || size.columns < 3 || size.steps < 1) {
    std::fprintf(stderr,
                 "usage: kokkos_heat [slabs >= 2 [rows >= 3 [columns >= 3 [steps >= 1]]]]\n");
    return 2;
  }
  return heat(size);
}
