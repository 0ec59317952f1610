// SPDX-License-Identifier: Apache-2.0
// A program and its plugin, a shared library, both use runnel. They must share the current stream,
// the pool and the counts.
#include "plugin.hpp"

#include <runnel/runnel.hpp>

#include <cstdio>
#include <thread>

namespace {
int failures = 0;
void expect(bool condition, const char* what) {
  if (!condition) ++failures;
  std::printf("%s: %s\n", condition ? "ok" : "FAILED", what);
}
}  // namespace

int main() {
  if (runnel::Device::count() == 0) {
    std::printf("%s: no device: %s\n", RUNNEL_BACKEND, runnel::Device::why_no_device().c_str());
    return 0;
  }
  runnel::Stream ours;
  {
    runnel::StreamGuard with{ours};
    expect(plugin::current_stream_id() == ours.id(),
           "the plugin sees the program's current stream");
    std::thread{[&] {
      expect(plugin::current_stream_id() != ours.id(), "another thread has its own");
    }}.join();
  }
  expect(plugin::live_streams() == runnel::live_objects().streams, "both count the same streams");
  const auto id = plugin::make_stream();
  plugin::make_current(id);
  expect(runnel::current_stream().id() == id, "the program sees the plugin's current stream");
  expect(id != ours.id(), "the ids of the streams differ");

  constexpr std::size_t bytes = 1 << 16;
  void* block = plugin::pinned_block(bytes);
  plugin::give_back(block, bytes);
  void* again = runnel::pinned_resource()->allocate(bytes);
  expect(again == block, "the program's pool hands out a block that the plugin freed");
  plugin::give_back(again, bytes);

  bool caught = false;
  try {
    plugin::throw_an_error();
  } catch (const runnel::Error& error) {
    caught = error.code() == runnel::errc::invalid_device;
  }
  expect(caught, "the program catches what is thrown in the plugin");
  std::printf("%s: %s\n", RUNNEL_BACKEND, failures == 0 ? "one current stream, one pool" : "WRONG");
  return failures == 0 ? 0 : 1;
}
