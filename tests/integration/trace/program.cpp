// SPDX-License-Identifier: Apache-2.0
// Programs whose trace trace.py looks at: `trace_program <what> [file]`.
#include <dlfcn.h>

#include <clocale>
#include <cstring>
#include <filesystem>
#include <runnel/graph.hpp>
#include <runnel/trace.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../../support/process.hpp"
#include "../../support/standin/inspect.hpp"

namespace {
using namespace runnel;
using namespace std::chrono_literals;

constexpr std::size_t count = 1 << 20;

/// Work of every kind on two streams.
void work() {
  Stream up{{.name = "up \"quoted\""}};
  Stream down;
  std::vector<int> values(count, 3), result(count);
  PinnedBuffer<int> pinned{count};
  DeviceBuffer<int> buffer{count, up};
  // so that the copies find a busy stream
  up.launch_host_func([] { std::this_thread::sleep_for(5ms); });
  copy(up, buffer, pinned);
  copy(up, buffer, values);
  {
    const TraceRange range{up, "my kernels"};
    fill(up, buffer, 5);
  }
  {
    const TraceRange without_name{up, nullptr};
  }
  const Graph graph = capture(up, [&] { fill(up, buffer, 6); });
  graph.launch(up);
  down.wait_stream(up);
  copy(down, result, buffer);
  down.synchronize();
  up.synchronize();
  if (result[count - 1] != 6) std::puts("wrong bytes");
}

int fork_and_end(const char* file) {
  work();
  const int status = test_support::in_child([] {
    const bool wrote = Trace::write();
    std::exit(wrote ? 7 : 0);
    return 0;
  });
  if (status != 0) std::printf("the child ended with %d\n", status);
  if (std::filesystem::file_size(file) != 0) std::puts("the child has written");
  return status;
}

int write_twice(const char* file) {
  if (Trace::is_on() || Trace::write()) std::puts("the trace is on");
  if (!Trace::start(file)) std::puts("the trace cannot be started");
  work();
  if (!Trace::write()) std::puts("the trace cannot be written");
  std::filesystem::copy_file(file, std::string{file} + ".first");
  work();
  return 0;
}

/// A file that cannot be written is no reason to do without the next one, which is written at exit.
int start_again(const char* file) {
  if (Trace::start("/missing/file.json")) std::puts("the trace is started");
  if (!Trace::start(file)) std::puts("the trace cannot be started");
  work();
  return 0;
}

template <class Function>
Function* find(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) std::printf("%s is not there\n", name);
  return found;
}

/// Kernels on each kind of stream of each device, which only the CUDA stand-in can run without a
/// device.
int run_kernels() {
  auto* const launch = find<decltype(standin_run_kernel)>("standin_run_kernel");
  auto* const make_stream = find<int(void**, unsigned, int)>("cudaStreamCreateWithPriority");
  for (int device = 0; device < Device::count(); ++device) {
    const DeviceGuard on{Device{device}};
    Stream up{{.name = "up"}};
    const StreamRef all = Device{device}.default_stream();
    const StreamRef own = StreamRef::per_thread_default(Device{device});
    DeviceBuffer<int> buffer{count, up};
    launch(up.native(), "_Z5scalePfi");
    fill(up, buffer, 5);
    launch(up.native(), "plain");
    const Graph graph = capture(up, [&] { launch(up.native(), "in_graph"); });
    graph.launch(up);
    up.synchronize();
    fill(all, buffer, 6);
    launch(all.native(), "in_default");
    all.synchronize();
    fill(own, buffer, 7);
    launch(own.native(), "in_own_default");
    own.synchronize();
    void* others = nullptr;
    make_stream(&others, 1, 0);
    launch(others, "of_others");
    Device{device}.synchronize();
  }
  return 0;
}

/// Four threads start the trace, use one stream and one of their own, and write the file, all at
/// the same time.
int use_from_threads(const char* file) {
  const Stream shared{{.name = "shared"}};
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i)
    all.emplace_back([&] {
      if (!Trace::start(file)) std::puts("the trace cannot be started");
      const Stream own;
      DeviceBuffer<int> buffer{100, own};
      for (int round = 0; round < 25; ++round) {
        const TraceRange range{shared, "of a thread"};
        fill(own, buffer, round);
        shared.wait_stream(own);
        fill(shared, buffer, round);
        own.wait_stream(shared);
        if (!Trace::is_on()) std::puts("the trace is off");
        if (round % 5 == 0 && !Trace::write()) std::puts("the trace cannot be written");
      }
      own.synchronize();
    });
  for (std::thread& each : all) each.join();
  shared.synchronize();
  return 0;
}

/// Ends while the stream still works.
int end_while_busy() {
  static Stream stream;
  PinnedBuffer<int> pinned{count};
  stream.launch_host_func([] { std::this_thread::sleep_for(200ms); });
  static DeviceBuffer<int> buffer{count, stream};
  copy(stream, buffer, pinned);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_ALL, "");
  const char* const what = argc > 1 ? argv[1] : "";
  const char* const file = argc > 2 ? argv[2] : "";
  if (std::strcmp(what, "fork") == 0) return fork_and_end(file);
  if (std::strcmp(what, "write") == 0) return write_twice(file);
  if (std::strcmp(what, "again") == 0) return start_again(file);
  if (std::strcmp(what, "kernels") == 0) return run_kernels();
  if (std::strcmp(what, "threads") == 0) return use_from_threads(file);
  if (std::strcmp(what, "busy") == 0) return end_while_busy();
  work();
  return 0;
}
