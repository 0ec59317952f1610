// SPDX-License-Identifier: Apache-2.0
// Programs whose trace trace.py looks at: `trace_program <what> [file]`.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <runnel/graph.hpp>
#include <runnel/runnel.hpp>
#include <runnel/trace.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../support/process.hpp"

namespace {
using namespace runnel;

constexpr std::size_t count = 1 << 20;

/// Work of every kind on two streams.
void work() {
  Stream up{{.name = "up \"quoted\""}};
  Stream down;
  std::vector<int> values(count, 3), result(count);
  PinnedBuffer<int> pinned{count};
  DeviceBuffer<int> buffer{count, up};
  up.launch_host_func([] { std::this_thread::sleep_for(std::chrono::milliseconds{5}); });  // so that the copies find a busy stream
  copy(up, buffer, pinned);
  copy(up, buffer, values);
  {
    const TraceRange range{up, "my kernels"};
    fill(up, buffer, 5);
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

/// Ends while the stream still works.
int end_while_busy() {
  static Stream stream;
  PinnedBuffer<int> pinned{count};
  stream.launch_host_func([] { std::this_thread::sleep_for(std::chrono::milliseconds{200}); });
  static DeviceBuffer<int> buffer{count, stream};
  copy(stream, buffer, pinned);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  const char* const file = argc > 2 ? argv[2] : "";
  if (std::strcmp(what, "fork") == 0) return fork_and_end(file);
  if (std::strcmp(what, "write") == 0) return write_twice(file);
  if (std::strcmp(what, "busy") == 0) return end_while_busy();
  work();
  return 0;
}
