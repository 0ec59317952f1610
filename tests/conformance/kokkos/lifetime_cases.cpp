// SPDX-License-Identifier: Apache-2.0
// Cases that need a process of their own, because Kokkos can be initialized and finalized only
// once. `lifetime_cases <name>` runs one case and prints "passed" if nothing fails. From Kokkos 5.1
// on, an instance that still exists after finalize aborts the program.
#include <map>

#include "support.hpp"

namespace {
using namespace kokkos_tests;

int failures = 0;
void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("failed: %s\n", what);
}

constinit std::optional<Stream> static_stream;
constinit std::optional<kokkos::ExecStream<Space>> static_exec_stream;

void begin() { Kokkos::initialize(); }

void outside_of_kokkos() {
  Stream s;
  const auto use = [&] {
    return code_of([&] { return kokkos::fenced_exec_space<Space>(s); }) == errc::not_permitted;
  };
  const auto start = [&] {
    return code_of([&] { kokkos::launch<Space>(s, [](const Space&) { std::abort(); }); }) ==
           errc::not_permitted;
  };
  expect(use(), "fenced_exec_space before initialize is refused");
  expect(start(), "launch before initialize is refused");
  begin();
  const Data<int*> x("x", 5);
  enqueue_affine(s, x, 1, 4);
  expect(values(s, x) == Ints(5, 4), "a launch between initialize and finalize works");
  const_cast<Data<int*>&>(x) = {};
  Kokkos::finalize();
  expect(use(), "fenced_exec_space after finalize is refused");
  expect(start(), "launch after finalize is refused");
  PinnedInts memory{16};
  fill(s, memory, 3);
  s.synchronize();
  expect(memory[15] == 3, "the stream still works after finalize");
}

void finalize_before_streams() {
  begin();
  static_stream.emplace();
  static_exec_stream.emplace(Space{});
  enqueue_spin(*static_stream, 1ms);
  Stream s;
  enqueue_spin(s, 1ms);
  drop(kokkos::fenced_exec_space<kokkos::HostSpace>(s));
  const auto instances = kokkos::make_instances<Space>(4);
  for (const auto& each : instances) enqueue_spin(each, 1ms);
  Kokkos::finalize();
}

struct AddOne {
  int* at;
  KOKKOS_FUNCTION void operator()(int) const { Kokkos::atomic_add(at, 1); }
};
void work_pending_at_finalize() {
  begin();
  static PinnedInts& seen = *new PinnedInts{1};
  seen[0] = 0;
  Stream stays;
  {
    Stream goes;
    enqueue_spin(stays, 30ms);
    enqueue_spin(goes, 30ms);
    repeat(20, [&] {
      for (const Stream* each : {&stays, &goes}) {
        kokkos::launch<Space>(*each, [at = seen.device_pointer()](const Space& exec) {
          Kokkos::parallel_for(Policy(exec, 0, 1), AddOne{at});
        });
      }
    });
  }
  Kokkos::finalize();
  expect(seen[0] == 40, "finalize waits for all launched kernels, on destroyed streams too");
}

void exit_without_finalize() {
  begin();
  static_stream.emplace();
  enqueue_spin(*static_stream, 20ms);
  std::puts("passed");
  std::fflush(stdout);
  std::exit(0);
}

void instance_outlives_its_stream() {
  begin();
  {
    std::optional<Stream> s{std::in_place};
    const StreamRef view = *s;
    const Space exec = kokkos::fenced_exec_space<Space>(*s);
    if constexpr (kokkos::device_space<Space>) {
      // On a device nothing may use such an instance, not even its destructor. So the test never
      // destroys it.
      new Space{exec};
      s.reset();
      expect(
          code_of([&] { return kokkos::fenced_exec_space<Space>(view); }) == errc::invalid_handle,
          "the stream is refused");
      std::puts(failures == 0 ? "passed" : "");
      std::fflush(stdout);
      std::_Exit(failures);
    } else {
      s.reset();
      const kokkos::ExecStream again{exec};
      expect(again.fenced_exec() == exec, "on the host, an instance is usable without its stream");
      again.synchronize();
    }
  }
  Kokkos::finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> cases{
      {"outside_of_kokkos", outside_of_kokkos},
      {"finalize_before_streams", finalize_before_streams},
      {"work_pending_at_finalize", work_pending_at_finalize},
      {"exit_without_finalize", exit_without_finalize},
      {"instance_outlives_its_stream", instance_outlives_its_stream},
  };
  const auto found = cases.find(argc > 1 ? argv[1] : "");
  if (found == cases.end()) {
    for (const auto& [name, run] : cases) std::printf("%s\n", name.c_str());
    return 2;
  }
  if (Device::count() == 0) {
    std::printf("skipped: %s\n", Device::why_no_device().c_str());
    return 77;
  }
  found->second();
  if (failures == 0) std::puts("passed");
  return failures;
}
