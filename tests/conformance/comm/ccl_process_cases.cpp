// SPDX-License-Identifier: Apache-2.0
// What ends a process, or needs one of its own. Each case is a run of this program: see
// ccl_processes.py.
#include <unistd.h>

#include <sys/wait.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <runnel/communicator.hpp>
#include <runnel/runnel.hpp>
#include <system_error>
#include <thread>

#include "own_device.hpp"
#include "say_error.hpp"

using namespace runnel;
using comm::say_error;
using namespace std::chrono_literals;

namespace {

World world() {
  World found = World::from_environment();
  use_own_device(found);
  return found;
}
CommunicatorOptions options(std::chrono::milliseconds timeout = 0ms) {
  return {.engine = Engine::ccl, .timeout = timeout};
}

/// One process dies; the others wait for it. Then they can end as ever.
void die(std::chrono::milliseconds timeout) {
  const World all_of_them = world();
  const Communicator all{all_of_them, options(timeout)};
  const Stream stream;
  DeviceBuffer<int> values{10, stream};
  fill(stream, values, 1);
  all.all_reduce(stream, values);
  stream.synchronize();
  if (all.rank() == 1) std::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  all.all_reduce(stream, values);
  try {
    stream.synchronize();
    std::puts("no error");
  } catch (const Error& error) {
    const bool is_named = error.code() == errc::peer_lost || error.code() == errc::timed_out;
    std::puts(is_named && std::chrono::steady_clock::now() - begin < timeout + 3s
                  ? "an error in time"
                  : error.what());
  }
}

/// Nothing is ended by the program, and an operation may be under way.
void just_return() {
  static const Communicator all{world(), options(60s)};
  static const Stream stream;
  static DeviceBuffer<int> values{10, stream};
  fill(stream, values, 1);
  if (all.rank() == 0) all.all_reduce(stream, values);
  std::puts("done");
}

/// The destructor does not wait for operations, nor for other processes.
void destroy() {
  const World all_of_them = world();
  const Stream stream;
  DeviceBuffer<int> values{10, stream};
  std::optional all{Communicator{all_of_them, options()}};
  if (all->rank() == 0) {
    all->all_reduce(stream, values);
    const auto begin = std::chrono::steady_clock::now();
    all.reset();
    std::puts(std::chrono::steady_clock::now() - begin < 3s ? "at once" : "late");
    std::fflush(stdout);
    char nothing = 0;
    all_of_them.broadcast(&nothing, 1);
  } else {
    char nothing = 0;
    all_of_them.broadcast(&nothing, 1);
    all->all_reduce(stream, values);
    std::puts("at once");
  }
  stream.synchronize();
}

/// A child that uses the communicator and ends, while an operation is under way in its parent.
void fork_in_use() {
  static const Communicator all{world(), options(60s)};
  const Stream stream;
  DeviceBuffer<int> values{10, stream};
  std::atomic_bool is_open{false};
  stream.launch_host_func([&] {
    while (!is_open) std::this_thread::yield();
  });
  all.all_reduce(stream, values);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    say_error([&] { all.all_reduce(stream, values); });
    say_error([&] { static_cast<void>(all.split(0)); });
    say_error([&] { all.check(); });
    say_error([] { const Communicator another{World::from_environment(), options()}; });
    std::fflush(stdout);
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  is_open = true;
  stream.synchronize();
  std::puts(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "the child ended"
                                                          : "the child did not end well");
}

/// The library refuses what it is asked: see STANDIN_CCL_FAULT.
void make(std::chrono::milliseconds timeout = 0ms) {
  say_error([&] { const Communicator all{world(), options(timeout)}; });
}

void reduce(std::chrono::milliseconds timeout) {
  const Communicator all{world(), options(timeout)};
  const Stream stream;
  DeviceBuffer<int> values{10, stream};
  say_error([&] {
    for (int i = 0; i < 3; ++i) all.all_reduce(stream, values);
    stream.synchronize();
  });
  say_error([&] { all.check(); });
}

void environment() {
  say_error([] { static_cast<void>(World::from_environment()); });
}

}  // namespace

int main(int, char** argv) {
  const auto is = [&](const char* name) { return std::strcmp(argv[1], name) == 0; };
  if (is("die")) die(std::chrono::seconds{std::atoi(argv[2])});
  if (is("just_return")) just_return();
  if (is("destroy")) destroy();
  if (is("fork_in_use")) fork_in_use();
  if (is("make")) make();
  if (is("make_within_a_second")) make(1s);
  if (is("make_with_the_longest_timeout")) make(std::chrono::milliseconds::max());
  if (is("reduce")) reduce(0ms);
  if (is("reduce_with_timeout")) reduce(60s);
  if (is("environment")) environment();
}
