// SPDX-License-Identifier: Apache-2.0
/// Ends or forks a process while other threads enqueue, copy, record, and make and destroy objects.
/// `exits <case>` runs a case once: it must end in time, with status 0 for a fork and 3 for an
/// exit. Without arguments it lists the cases.

#include <signal.h>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "../../support/eventually.hpp"
#include "../../support/process.hpp"

namespace {
using namespace runnel;
using test_support::in_child;
using test_support::works;

constexpr int exit_status = 3;
constexpr int threads = 3;
constexpr std::size_t size = 1024;

/// Ends the process at once: the case has failed.
[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "failed: %s: %s\n", what, why);
  _exit(99);
}

/// One of each kind of operation on a stream and memory of its own.
void work_once(StreamPool& pool, Stream& longlived) {
  Stream stream{StreamOptions{.priority = Priority::high}};
  Event event{longlived};
  const TimedEvent timed{stream};
  DeviceBuffer<int> device{size, stream};
  PinnedBuffer<int> pinned{size};
  auto pageable = std::make_shared<std::vector<int>>(size);
  fill(stream, device, 4);
  copy(stream, pinned, device);
  copy(stream, *pageable, device);
  stream.launch_host_func([pageable] {});
  stream.wait_event(event);
  longlived.wait_stream(stream);
  const StreamLease lease = pool.acquire();
  lease.wait_stream(stream);
  device.record_stream(lease);
  stream.synchronize();
  const StreamGuard with{lease};
}

std::atomic_int rounds{0};

/// CUDA refuses every thread's calls once it has been unloaded, with this number. No other runtime
/// does.
bool is_unloaded(const Error& error) {
  return error.code() == errc::not_permitted && error.native_code() == 4;
}

/// Works for ever. Its objects are never destroyed: it is still at work when static objects are.
void work_for_ever() {
  try {
    StreamPool& pool = *new StreamPool{Device::current(), {.size = 2}};
    Stream& longlived = *new Stream;
    for (;;) {
      work_once(pool, longlived);
      ++rounds;
    }
  } catch (const Error& error) {
    if (!is_unloaded(error)) fail("a thread that works", error.what());
    for (;;) pause();
  } catch (const std::exception& error) {
    fail("a thread that works", error.what());
  }
}

/// Starts the threads, and waits until all are at work.
void begin_work() {
  for (int i = 0; i < threads; ++i) std::thread{work_for_ever}.detach();
  for (test_support::Pauses pause; rounds < 2 * threads;) pause();
}

/// Uses the library while static objects are destroyed: a call works or is refused by name.
struct UsedAtTheEnd {
  ~UsedAtTheEnd() {
    try {
      if (is_used && !works(Stream{})) fail("a static destructor", "the stream does not work");
    } catch (const Error& error) {
      if (error.code() != errc::not_permitted && error.code() != errc::forked)
        fail("a static destructor", error.what());
    } catch (const std::exception& error) {
      fail("a static destructor", error.what());
    }
  }
  bool is_used = false;
};
UsedAtTheEnd used_at_the_end;
constinit std::optional<Stream> static_stream;
constinit std::optional<DeviceBuffer<int>> static_memory;

int return_from_main() {
  begin_work();
  return exit_status;
}
int exit_from_main() {
  begin_work();
  std::exit(exit_status);
}
int exit_quickly() {
  begin_work();
  std::quick_exit(exit_status);
}
int exit_at_once() {
  begin_work();
  _exit(exit_status);
}
int exit_from_a_thread() {
  begin_work();
  std::thread{[] { std::exit(exit_status); }}.join();
  return 98;
}
int exit_from_a_host_function() {
  begin_work();
  Stream& stream = *new Stream;
  stream.launch_host_func([] { std::exit(exit_status); });
  stream.synchronize();
  return 98;
}
int exit_with_static_objects() {
  static_stream.emplace();
  static_memory.emplace(size, *static_stream);
  used_at_the_end.is_used = true;
  begin_work();
  fill(*static_stream, *static_memory, 1);
  static_memory->record_stream(*new Stream);
  return exit_status;
}
int exit_during_first_use() {
  for (int i = 0; i < threads; ++i) std::thread{work_for_ever}.detach();
  std::exit(exit_status);
}

/// Requires: this is a forked child of a process that has used the library.
int is_refused(Stream& stream, StreamPool& pool) {
  alarm(20);  // kills a child that waits for a lock
  const auto refused = [](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code() == errc::forked;
    }
    return false;
  };
  std::vector<int> numbers(4);
  if (!refused([&] { const Stream made; })) return 21;
  if (!refused([&] { stream.synchronize(); })) return 22;
  if (!refused([&] { copy(stream, numbers, numbers); })) return 23;
  if (!refused([&] { const StreamLease lease = pool.acquire(); })) return 24;
  if (!refused([&] { const PinnedBuffer<int> buffer{4}; })) return 25;
  if (!refused([&] { static_cast<void>(Device::current()); })) return 26;
  const Stream dies_here{std::move(stream)};
  return 0;
}

constexpr int forks = 20;

/// Forks again and again beside the work. `child` is what a child does; it returns the child's exit
/// status, which must be 0.
template <class Child>
int fork_often(Child child) {
  begin_work();
  StreamPool pool{Device::current(), {.size = 2}};
  for (int i = 0; i < forks; ++i) {
    Stream stream;
    fill(stream, *new std::vector<int>(size), 1);
    const int status = in_child([&] { return child(stream, pool); });
    if (status != 0) {
      std::fprintf(stderr, "failed: child %d ended with %d\n", i, status);
      _exit(97);
    }
    if (!works(stream)) fail("the parent", "its stream does not work after the fork");
  }
  _exit(0);
}

int fork_and_use() { return fork_often(is_refused); }
int fork_and_exit() {
  return fork_often([](Stream&, StreamPool&) -> int {
    alarm(20);
    used_at_the_end.is_used = true;
    std::exit(0);
  });
}
int fork_and_exec() {
  return fork_often([](Stream&, StreamPool&) {
    execl("/proc/self/exe", "exits", "use_once", nullptr);
    return 96;
  });
}
int fork_twice() {
  return fork_often([](Stream& stream, StreamPool& pool) {
    return in_child([&] { return is_refused(stream, pool); });
  });
}
int fork_from_a_thread() {
  std::thread{fork_and_use}.join();
  return 98;
}

int use_once() { return works(Stream{}) ? 0 : 1; }

/// The child may use the library if its parent has not, whatever the parent's threads are at.
int fork_before_first_use() {
  std::atomic_bool stop{false};
  std::vector<std::jthread> busy;
  for (int i = 0; i < threads; ++i)
    busy.emplace_back([&] {
      while (!stop) delete new std::vector<int>(size);
    });
  int wrong = 0;
  for (int i = 0; i < forks; ++i)
    wrong += in_child([] {
               alarm(20);
               return use_once();
             }) != 0;
  stop = true;
  return wrong + use_once();
}

/// The fork meets the first use. A child either may use the library, or is refused by name.
int fork_during_first_use() {
  std::vector<std::jthread> first;
  for (int i = 0; i < threads; ++i) first.emplace_back([] { static_cast<void>(use_once()); });
  int wrong = 0;
  for (int i = 0; i < forks; ++i)
    wrong += in_child([] {
               alarm(20);
               try {
                 return use_once();
               } catch (const Error& error) {
                 return error.code() == errc::forked ? 0 : 1;
               }
             }) != 0;
  first.clear();
  return wrong + use_once();
}

struct Case {
  const char* name;
  int (*run)();
};
constexpr Case cases[] = {
    {"return_from_main", return_from_main},
    {"exit_from_main", exit_from_main},
    {"exit_quickly", exit_quickly},
    {"exit_at_once", exit_at_once},
    {"exit_from_a_thread", exit_from_a_thread},
    {"exit_from_a_host_function", exit_from_a_host_function},
    {"exit_with_static_objects", exit_with_static_objects},
    {"exit_during_first_use", exit_during_first_use},
    {"fork_and_use", fork_and_use},
    {"fork_and_exit", fork_and_exit},
    {"fork_and_exec", fork_and_exec},
    {"fork_twice", fork_twice},
    {"fork_from_a_thread", fork_from_a_thread},
    {"fork_before_first_use", fork_before_first_use},
    {"fork_during_first_use", fork_during_first_use},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Case& each : cases)
      std::printf("%s %d\n", each.name,
                  std::string_view{each.name}.substr(0, 5) == "fork_" ? forks : 1);
    return 0;
  }
  if (std::strcmp(argv[1], "use_once") == 0) return use_once();
  for (const Case& each : cases)
    if (std::strcmp(argv[1], each.name) == 0) return each.run();
  std::fprintf(stderr, "usage: exits [case]\n");
  return 97;
}
