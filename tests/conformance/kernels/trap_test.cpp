// SPDX-License-Identifier: Apache-2.0
/// A kernel that traps, in a process of its own. The next wait and every later call throw an Error
/// by name, in bounded time. Everything can be destroyed, each callable is destroyed, and the
/// process ends by itself with status 0. The sticky faults of tests/stress/sweep are the same
/// without a GPU: a stand-in runs no kernels.
#include "kernels.hpp"

#include <unistd.h>
#include <atomic>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "../../support/eventually.hpp"

namespace {
using namespace runnel;
using namespace std::chrono_literals;

constexpr int skipped = 77;
constexpr unsigned patience_seconds = 60;
int failures = 0;

void expect(bool holds, const std::string& what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
  failures += holds ? 0 : 1;
}

/// The call must throw the error of a device that was lost, with the runtime's own number and name.
template <class F>
void expect_lost(const char* what, F&& call) {
  try {
    call();
    expect(false, std::string{what} + " did not throw");
  } catch (const Error& error) {
    const bool is_named = error.code() == errc::device_lost && error.native_code() != 0 &&
                          std::string{error.native_name()} != "";
    expect(is_named, std::string{what} + ": " + error.what());
  }
}

/// Work of every kind, on objects that are made before the trap and destroyed after it.
struct Work {
  static constexpr std::size_t count = std::size_t{4} << 20;
  // The pageable memory comes first, so that it is freed last.
  std::vector<int> in = std::vector<int>(count, 1), out = std::vector<int>(count);
  Stream trapped, beside, third;
  StreamPool pool{Device::current(), {.size = 2}};
  StreamLease lease = pool.acquire();
  Event event{beside};
  TimedEvent timed{beside};
  DeviceBuffer<int> there{count, trapped}, other{count, beside};
  PinnedBuffer<int> pinned{count};
  Future told;
  std::shared_ptr<int> alive = std::make_shared<int>(0);  // held by the callables, too

  /// Enqueues it, most of it behind the trap.
  void enqueue() {
    copy(trapped, there, in);
    trapped.synchronize();
    copy(beside, other, pinned);
    std::promise<void> gate;  // the trap runs only once the future is there
    trapped.launch_host_func([opened = gate.get_future().share()] { opened.wait(); });
    kernels::launch_trap(trapped);
    told = trapped.future();
    gate.set_value();
    try {  // the runtime may report the trap from here on
      trapped.launch_host_func([keep = alive] {});
      copy(trapped, out, there);
      trapped.record_event(event);
      beside.wait_event(event);
      beside.launch_host_func([keep = alive] {});
      third.wait_stream(beside);
      lease.wait_stream(trapped);
      other.record_stream(third);
    } catch (const Error& error) {
      expect(error.code() == errc::device_lost, std::string{"reported early: "} + error.what());
    }
  }
  void expect_all_lost() {
    expect(told.wait_for(10s), "a completion is told although the runtime skips host functions");
    expect_lost("Future::get", [&] { told.get(); });
    expect_lost("synchronize", [&] { trapped.synchronize(); });
    expect_lost("synchronize, another stream", [&] { beside.synchronize(); });
    expect_lost("synchronize_for", [&] { static_cast<void>(third.synchronize_for(1s)); });
    expect_lost("query", [&] { static_cast<void>(trapped.query()); });
    expect_lost("Event::query", [&] { static_cast<void>(event.query()); });
    expect_lost("Event::synchronize", [&] { timed.synchronize(); });
    expect_lost("record_event", [&] { beside.record_event(event); });
    expect_lost("launch_host_func", [&] { third.launch_host_func([keep = alive] {}); });
    expect_lost("copy", [&] { copy(beside, other, pinned); });
    expect_lost("copy of pageable memory", [&] { copy(beside, other, in); });
    expect_lost("fill", [&] { fill(third, other, 1); });
    expect_lost("Stream", [] { const Stream stream; });
    expect_lost("DeviceBuffer", [&] { const DeviceBuffer<int> buffer{1 << 20, third}; });
    expect_lost("Device::synchronize", [] { Device::current().synchronize(); });
  }
};

}  // namespace

int main() {
  // else a kernel's first launch would wait for the gate before it
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (Device::count() == 0)
    return std::printf("skipped: %s\n", Device::why_no_device().c_str()), skipped;
  alarm(patience_seconds);  // ends a process that hangs
  std::weak_ptr<int> callables;
  {
    const auto work = std::make_unique<Work>();
    callables = work->alive;
    work->enqueue();
    work->expect_all_lost();
  }
  expect(test_support::eventually(10s, [&] { return callables.expired(); }),
         "every callable was destroyed");
  const LiveObjects left = live_objects();
  expect(left.streams == 0 && left.events == 0 && left.pinned_blocks == 0 &&
             left.device_blocks == 0 && left.host_functions == 0,
         "nothing is alive");
  std::printf(failures == 0 ? "passed\n" : "%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
