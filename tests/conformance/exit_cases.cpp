// SPDX-License-Identifier: Apache-2.0
// Cases that need a process of their own: first use, exit and fork. `exit_cases <name>` runs one
// case. It prints "passed", or what failed.
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <latch>
#include <limits>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "../support/eventually.hpp"
#include "../support/process.hpp"
#include "process_cases.hpp"

namespace {
using namespace runnel;
using namespace process_cases;
using namespace std::chrono_literals;
using std::size_t;
using test_support::in_child;
using test_support::wait_for_child;
using test_support::works;
using Ints = std::vector<int>;
using DeviceInts = DeviceBuffer<int>;
using PinnedInts = PinnedBuffer<int>;

/// Blocks the stream until the returned promise is set. The promise is never destroyed, so the end
/// of the process does not set it.
std::promise<void>& hold(StreamRef stream) {
  static std::vector<std::promise<void>*>& kept = *new std::vector<std::promise<void>*>;
  kept.push_back(new std::promise<void>);
  stream.launch_host_func([future = kept.back()->get_future()] { future.wait(); });
  return *kept.back();
}

// These are destroyed after all objects that are made while main() runs.
constinit std::optional<Stream> early_stream;
constinit std::optional<Event> early_event;
constinit std::optional<StreamPool> early_pool;

void use_once() {
  Stream stream;
  expect(works(stream), "a stream works");
}

void first_use_from_many_threads() {
  constexpr int count = 16;
  std::latch start{count};
  std::atomic_int good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        switch (i % 4) {
          case 0:
            good += Device::count() > 0;
            break;
          case 1:
            good += works(Device{0}.default_stream());
            break;
          case 2:
            good += works(current_stream());
            break;
          default:
            good += works(Stream{});
        }
      } catch (const std::exception& error) {
        std::printf("thrown: %s\n", error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  expect(good == count, std::to_string(good) + " of 16 threads could use the library");
}

/// The host function needs a slot, and only that of an ended stream may be free. The library must
/// not ask the runtime there whether that stream is complete.
void first_use_of_the_default_stream_in_a_host_function() {
  std::vector<Stream> streams;
  for (int i = 0; i < 64; ++i) streams.emplace_back(Device{0});  // No slot is left in its batch.
  std::promise<void> gate;
  std::promise<bool> ends_well;
  std::atomic_bool is_over{false};
  streams.back().launch_host_func([&] {
    gate.get_future().wait();
    is_over = true;
  });
  streams.back().on_complete(
      [&](const Outcome& outcome) { ends_well.set_value(outcome.is_ok() && is_over); });
  streams.pop_back();
  streams.back().launch_host_func([] { static_cast<void>(current_stream()); });
  streams.back().synchronize();
  gate.set_value();
  expect(ends_well.get_future().get(), "the function is called after the work, without an error");
}

void static_objects() {
  static Stream stream;
  static StreamPool pool{Device::current(), {.size = 3}};
  static StreamLease lease = pool.acquire();
  static Event event{stream};
  static TimedEvent timed{lease};
  static DeviceInts device_memory{100, stream};
  static PinnedInts pinned_memory{100};
  early_stream.emplace();
  early_pool.emplace(Device::current());
  early_event.emplace(*early_stream);
  early_stream->use();
  expect(works(stream) && works(lease) && works(*early_stream), "static streams work");
  early_stream->launch_host_func([] {});
}

/// Counts what it is given back.
struct CountingResource {
  static inline int returned = 0;
  void* allocate(StreamRef stream, size_t bytes, size_t alignment) {
    return DeviceResource{}.allocate(stream, bytes, alignment);
  }
  void deallocate(StreamRef stream, void* pointer, size_t bytes, size_t alignment) {
    ++returned;
    DeviceResource{}.deallocate(stream, pointer, bytes, alignment);
  }
};

/// Neither while static objects are destroyed nor in a forked child is the runtime called, and so
/// no resource is.
void static_buffers_of_a_resource() {
  struct Check {
    ~Check() {
      if (CountingResource::returned != 1) std::_Exit(9);
    }
  };
  static const Check after;
  static Stream stream;
  static DeviceInts memory{100, CountingResource{}, stream};
  auto* const inherited = new DeviceInts{100, CountingResource{}, stream};
  expect(in_child([&] {
           delete inherited;
           return CountingResource::returned == 0 ? 0 : 1;
         }) == 0,
         "a forked child calls no resource");
  delete inherited;
  expect(CountingResource::returned == 1, "the parent does");
}

/// The threads that do not exit go on, so a static object may join one that waits.
void static_thread_that_waits_for_the_device() {
  struct Joined {
    ~Joined() {
      if (!thread.joinable()) return;
      is_exiting = true;
      thread.join();
      if (!has_waited) std::_Exit(9);
    }
    std::thread thread;
    std::atomic_bool is_exiting{false};
    bool has_waited = false;
  };
  static Joined waits;  // ends after the library
  // The vendors' runtimes may have ended by then, too.
  if (Device{0}.name().find("Stand-in") == std::string::npos) return;
  waits.thread = std::thread{[] {
    while (!waits.is_exiting) std::this_thread::yield();
    waits.has_waited = Device{0}.synchronize_for(20s);
  }};
}

void thread_local_objects() {
  const auto use = [] {
    static thread_local Stream stream;
    static thread_local StreamPool pool{Device::current(), {.size = 2}};
    static thread_local Event event{stream};
    static thread_local DeviceInts memory{100, stream};
    static thread_local StreamGuard with{stream};
    expect(works(stream) && works(current_stream()), "a thread_local stream works");
    stream.launch_host_func([] {});
  };
  std::thread{use}.join();
  const LiveObjects left = live_objects();
  expect(left.streams == 0 && left.events == 0 && left.device_blocks == 0,
         "the thread's objects were destroyed with the thread");
  use();
}

void exit_from_a_host_function() {
  // Never destroyed, because this thread uses the streams while another thread calls exit().
  // Volatile, so that a leak checker sees the pointers.
  static Stream* volatile const kept[2] = {new Stream, new Stream};
  const Stream& stream = *kept[0];
  const Stream& other = *kept[1];
  static const Event event{other};
  other.wait_event(event);
  stream.launch_host_func([] {
    std::puts("passed");
    std::fflush(stdout);
    std::exit(7);
  });
  stream.synchronize();
  expect(false, "synchronize() returned, although the function calls exit()");
}

void exit_with_a_closed_gate() {
  static Stream stream;
  static Event event;
  hold(stream);
  static Stream waiter;
  event.record(stream);
  waiter.wait_event(event);
  waiter.launch_host_func(
      [] { std::puts("failed: a function ran that is behind the closed gate"); });
  expect(!stream.query(), "the gate is closed");
}

void exit_with_a_value_that_never_comes() {
  static Stream stream;
  static PinnedBuffer<std::uint32_t> number{1};
  number[0] = 0;
  if (stream.device().has_stream_memory_operations()) stream.wait_value(number.data(), 1);
  stream.launch_host_func([] {});
}

void exit_with_a_release_under_way() {
  static Stream stream;
  {
    const PinnedBuffer<char> cached{1000}, another{1 << 20};
  }
  hold(stream);
  PinnedPool::trim();
  expect(PinnedPool::statistics().cached == 0, "the pool gives its blocks up");
}

/// Without a thread, memory goes back in place.
void releases_without_a_thread() {
  {
    const PinnedBuffer<char> cached{1000};
  }
  Ints values(1000);
  std::optional<HostRegistration> registration{values};
  SharedBuffer<int> shared{1000};
  pthread_attr_t no_room;
  pthread_attr_init(&no_room);
  pthread_attr_setstacksize(&no_room, 1UL << 46);
  expect(pthread_setattr_default_np(&no_room) == 0, "the size of stacks is set");
  PinnedPool::trim();
  const PinnedStatistics now = PinnedPool::statistics();
  expect(now.cached == 0 && now.releasing == 0, "the memory is back at once");
  registration.reset();
  registration.emplace(values);
  shared = {};
}

void exit_on_another_thread_with_a_closed_gate() {
  static Stream stream;
  static std::vector<unsigned char> ordinary(100'000);
  static SharedBuffer<int> shared{100};
  static HostRegistration registration{ordinary.data(), ordinary.size()};
  static std::optional<ManagedBuffer<int>> managed;
  try {
    managed.emplace(100);
  } catch (const Error& error) {
    expect(error.code() == errc::not_supported, error.what());
  }
  hold(stream);
  std::thread{[] { std::exit(finish() + 7); }}.join();
}

/// Its memory is gone when the process has ended it.
struct Pages {
  static constexpr size_t bytes = 16UL << 20;
  std::byte* begin = static_cast<std::byte*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ~Pages() { munmap(begin, bytes); }
  std::span<std::byte> all() const { return {begin, bytes}; }
};

void exit_with_copies_of_static_memory() {
  // Destroyed last: copies have the time to fail.
  static const struct Linger {
    ~Linger() { std::this_thread::sleep_for(50ms); }
  } linger;
  static Stream stream;
  static DeviceBuffer<std::byte> there{Pages::bytes, stream};
  static Pages from, to;
  for (int i = 0; i < 8; ++i) {
    copy(stream, there, from.all());
    copy(stream, to.all(), there);
    copy(stream, to.all(), from.all());
    fill(stream, to.all(), std::byte{1});
  }
}

void exit_with_pending_completions() {
  static Stream stream;
  static Event event;
  hold(stream);
  event.record(stream);
  stream.on_complete([](const Outcome&) {
    std::puts("failed: a completion function ran that is behind the closed gate");
  });
  event.on_complete([](const Outcome&) { std::puts("failed: the event has not happened"); });
  static const Future future = stream.future();
  expect(!future.wait_for(1ms), "the gate is closed");
}

/// quiesce_for() says that functions are pending; the process ends all the same, and destroys
/// nothing that is kept.
void quiesce_then_exit_with_a_closed_gate() {
  struct Kept {
    Kept() = default;
    Kept(Kept&& other) noexcept : is_real{std::exchange(other.is_real, false)} {}
    ~Kept() {
      if (is_real) std::puts("failed: an object was destroyed that is behind the closed gate");
    }
    bool is_real = true;
  };
  static Stream stream;
  stream.launch_host_func([] {});
  keep(stream, Ints(10));
  expect(quiesce_for(30s), "all functions end");
  hold(stream);
  keep(stream, Kept{});
  expect(!quiesce_for(1ms), "the gate is closed");
  expect(in_child([] {
           try {
             static_cast<void>(quiesce_for(30s));
           } catch (const Error& error) {
             return error.code() == errc::forked ? 0 : 2;
           }
           return 1;
         }) == 0,
         "a forked child is refused");
}

void exit_from_a_completion_function() {
  static Stream stream;
  std::promise<void>& never = *new std::promise<void>;  // never set, and never destroyed
  stream.on_complete([](const Outcome&) { std::exit(finish() + 7); });
  never.get_future().wait();
}

/// The exit begins in the first of two functions whose streams were found complete together.
void exit_between_two_completions() {
  static std::atomic_bool is_exiting{false}, is_in_first{false};
  // Before the first call of the library: so it runs after the library has stopped its thread.
  std::atexit([] {
    is_exiting = true;
    std::this_thread::sleep_for(200ms);
  });
  static Stream stream;
  std::promise<void> are_both_there;
  stream.on_complete([&](const Outcome&) { are_both_there.get_future().wait(); });
  stream.on_complete([](const Outcome&) {
    is_in_first = true;
    for (test_support::Pauses pause; !is_exiting;) pause();
  });
  stream.on_complete([](const Outcome&) {
    std::puts("failed: a completion function was called after the exit had begun");
  });
  stream.synchronize();
  are_both_there.set_value();
  for (test_support::Pauses pause; !is_in_first;) pause();
}

void exit_beside_busy_completions() {
  const Stream& stream = *new Stream;  // never destroyed: the thread uses it until the process ends
  static std::atomic_long told{0};
  std::thread{[&stream] {
    try {
      for (;;) stream.on_complete([](const Outcome&) { ++told; });
    } catch (const Error&) {  // a runtime that is shutting down refuses
    }
  }}.detach();
  for (test_support::Pauses pause; told < 100;) pause();
}

/// Whether a child may not evaluate the expression.
#define EXPECT_FORKED(...) EXPECT_REFUSED(errc::forked, __VA_ARGS__)

/// Every use of a parent's object must be refused in a child, whatever work the parent has
/// enqueued.
int use_what_the_parent_made(Stream& stream, Event& event) {
  Ints a(4), b(4);
  std::uint32_t number = 0;
  EXPECT_FORKED(Stream{});
  EXPECT_FORKED(stream.query());
  EXPECT_FORKED(stream.synchronize());
  EXPECT_FORKED(stream.synchronize_for(1s));
  EXPECT_FORKED(stream.launch_host_func([] {}));
  EXPECT_FORKED(stream.record_event());
  EXPECT_FORKED(stream.record_event(event));
  EXPECT_FORKED(stream.wait_event(event));
  EXPECT_FORKED(stream.wait_stream(Device{0}.default_stream()));
  EXPECT_FORKED(event.query());
  EXPECT_FORKED(event.synchronize());
  EXPECT_FORKED(stream.wait_value(&number, 0));
  EXPECT_FORKED(stream.write_value(&number, 0));
  EXPECT_FORKED(StreamRef::from_native(nullptr, Device{0}));
  EXPECT_FORKED(stream.multiprocessors());
  EXPECT_FORKED(partition(Device{0}, 1));
  EXPECT_FORKED(SharedBuffer<int>{4, Device{0}});
  EXPECT_FORKED(SharedBuffer<int>::from_ipc_handle({}));
  EXPECT_FORKED(event.ipc_handle());
  EXPECT_FORKED(Event::from_ipc_handle({}));
  EXPECT_FORKED(copy(stream, a, b));
  EXPECT_FORKED(fill(stream, a, 1));
  EXPECT_FORKED(PinnedInts{4});
  EXPECT_FORKED(DeviceInts{4, stream});
  EXPECT_FORKED(Device{0}.synchronize());
  EXPECT_FORKED(Device{0}.use());
  EXPECT_FORKED(StreamPool{Device{0}});
  const Stream dies_here{std::move(stream)};  // destroyed in the child, without an error
  const Event dies_too{std::move(event)};
  return failures;
}

void fork_then_use_in_the_child() {
  Stream stream;
  Event event;
  auto& gate = hold(stream);
  event.record(stream);
  expect(in_child([&] { return use_what_the_parent_made(stream, event); }) == 0,
         "every call in the child was refused");
  // The parent still has the same objects, with the same pending work.
  expect(!stream.query() && !event.query(), "the parent's stream still waits");
  gate.set_value();
  event.synchronize();
  expect(works(stream) && works(Stream{}), "the parent's streams work after the child ended");
}

void fork_then_exit_in_the_child() {
  static Stream stream;
  static Event event;
  std::promise<void>& gate = hold(stream);
  event.record(stream);
  early_stream.emplace();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::exit(3);  // runs the destructors of the parent's static objects
  expect(wait_for_child(child) == 3, "the child exits with its own status");
  gate.set_value();
  expect(works(stream), "the parent's stream works after the child ended");
}

/// The service thread frees many blocks while the process exits. Nothing of them may look lost to a
/// leak checker, which this program has on only here.
void exit_beside_due_frees() {
  constexpr const char* options = "LSAN_OPTIONS";
  if (std::getenv(options) == nullptr) {
    setenv(options, "detect_leaks=1", 1);
    execl("/proc/self/exe", "exit_cases", "exit_beside_due_frees", nullptr);
  }
  const Stream own;
  const Stream other;
  std::promise<void>& gate = hold(other);
  {
    std::vector<DeviceInts> blocks;
    for (int i = 0; i < 3000; ++i) record_use(other, blocks.emplace_back(1, own));
  }
  gate.set_value();
  other.synchronize();
  std::this_thread::sleep_for(1ms);
}

void fork_then_exec() {
  Stream stream;
  auto& gate = hold(stream);
  const int status = in_child([] {
    execl("/proc/self/exe", "exit_cases", "use_once", nullptr);
    return 99;
  });
  expect(status == 0, "the program that the child executed ended with " + std::to_string(status));
  gate.set_value();
  expect(works(stream), "the parent's stream works after the child ended");
}

void fork_before_first_use() {
  expect(in_child([] {
           use_once();
           return finish();
         }) == 0,
         "the child can use the library");
  use_once();
}

/// Creates and destroys objects that take locks, until `stop` is set.
void keep_busy(StreamPool& pool, const std::atomic_bool& stop) {
  while (!stop) {
    const Stream stream, user;
    const DeviceInts on_device{100, stream};
    for (int i = 0; i < 200; ++i) {
      const Event event{stream};
      record_stream(user, on_device);
      const PinnedInts memory{100};
      const StreamLease lease = pool.acquire();
      const Stream wrapper =
          Stream::from_native(stream.native(), stream.device(), Ownership::borrow);
      static_cast<void>(PinnedPool::statistics());
    }
    stream.synchronize();
  }
}

/// Objects that a child inherits. The child may destroy them.
struct Inherited {
  explicit Inherited(StreamPool& from)
      : lease{from.acquire()}, own_pool{from.device(), {.size = 1}}, pool{&from} {}
  Stream stream;
  Stream wrapper = Stream::from_native(stream.native(), stream.device(), Ownership::borrow);
  Event event{stream};
  TimedEvent timed{stream};
  Event taken = Event::from_native(Event{stream}.release(), stream.device(), Ownership::take);
  PinnedInts pinned{100};
  DeviceInts on_device{100, stream};
  SharedBuffer<int> shared{100};
  StreamLease lease;
  StreamPool own_pool;
  StreamPool* pool;
};

int destroy_what_the_parent_made(std::optional<Inherited>& inherited) {
  alarm(20);  // kills a child that waits for a lock
  StreamPool& pool = *inherited->pool;
  Stream& stream = inherited->stream;
  const StreamRef view = stream;
  EXPECT_FORKED(PinnedPool::statistics());
  EXPECT_FORKED(PinnedPool::limit());
  EXPECT_FORKED(PinnedPool::set_limit(1 << 20));
  EXPECT_FORKED(PinnedPool::trim());
  const DeviceResource resource{Device{0}};
  EXPECT_FORKED(resource.statistics());
  EXPECT_FORKED(resource.limit());
  EXPECT_FORKED(resource.set_limit(1 << 20));
  EXPECT_FORKED(resource.reset_peak());
  EXPECT_FORKED(pool.acquire());
  EXPECT_FORKED(pool.device());
  EXPECT_FORKED(pool.size());
  EXPECT_FORKED(pool.leased());
  EXPECT_FORKED(pool.growth());
  EXPECT_FORKED(Stream::from_native(stream.native(), stream.device(), Ownership::borrow));
  EXPECT_FORKED(stream.release());
  EXPECT_FORKED(Event{}.record(stream));
  EXPECT_FORKED(record_stream(stream, inherited->pinned.data()));
  EXPECT_FORKED(stream.device().default_stream());
  EXPECT_FORKED(StreamRef::per_thread_default(stream.device()));
  inherited.reset();
  expect(!view.is_valid(), "a view of a destroyed stream must be invalid in the child");
  return failures;
}

void fork_beside_busy_threads() {
  StreamPool pool{Device::current(), {.size = 4}};
  std::atomic_bool stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { keep_busy(pool, stop); });
  for (int i = 0; i < 200 && failures == 0; ++i) {
    std::optional<Inherited> inherited{std::in_place, pool};
    const int status = in_child([&] { return destroy_what_the_parent_made(inherited); });
    expect(status == 0, "child " + std::to_string(i) + " ended with " + std::to_string(status));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  expect(works(Stream{}), "the parent's streams work after the children ended");
}

int use_completions_in_the_child(const Stream& stream, const Event& event,
                                 std::optional<Future>& future) {
  alarm(20);
  EXPECT_FORKED(stream.on_complete([](const Outcome&) {}));
  EXPECT_FORKED(event.on_complete([](const Outcome&) {}));
  EXPECT_FORKED(stream.future());
  EXPECT_FORKED(future->wait());
  EXPECT_FORKED(future->wait_for(1s));
  expect(!future->is_ready(), "the parent's work is not complete");
  future.reset();
  return failures;
}

void fork_beside_completions() {
  Stream blocked, busy;
  std::promise<void>& gate = hold(blocked);
  std::optional<Future> future = blocked.future();
  std::optional event{Event{blocked}};
  event->on_complete([](const Outcome&) {});
  std::atomic_bool stop{false};
  std::thread thread{[&] {
    while (!stop) busy.future().wait();
  }};
  for (int i = 0; i < 100 && failures == 0; ++i) {
    const int status = in_child([&] {
      const int failed = use_completions_in_the_child(blocked, *event, future);
      event.reset();
      return failed;
    });
    expect(status == 0, "child " + std::to_string(i) + " ended with " + std::to_string(status));
  }
  stop = true;
  thread.join();
  gate.set_value();
  future->get();
}

/// What the process writes to stderr from now on.
class CapturedErrors {
 public:
  CapturedErrors() : file_{std::tmpfile()} { dup2(fileno(file_), STDERR_FILENO); }
  std::string text() const {
    std::string all(1 << 16, '\0');
    const ssize_t count = pread(fileno(file_), all.data(), all.size(), 0);
    all.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return all;
  }
  bool eventually_has(const std::string& part) const {
    return test_support::eventually(15s, [&] { return text().find(part) != std::string::npos; });
  }
  size_t count(const std::string& part) const {
    const std::string all = text();
    size_t found = 0;
    for (auto at = all.find(part); at != all.npos; at = all.find(part, at + 1)) ++found;
    return found;
  }

 private:
  std::FILE* file_;
};

void hang_report() {
  setenv("RUNNEL_HANG_REPORT", "0.05", 1);
  const CapturedErrors errors;
  Stream holder{StreamOptions{.name = "holder"}}, waiter{StreamOptions{.name = "waiter"}},
      unused{StreamOptions{.name = "unused"}};
  unused.synchronize();
  std::promise<void>& gate = hold(holder);
  waiter.wait_stream(holder);
  Stream behind_event;
  behind_event.wait_event(holder.record_event());
  std::thread thread{[&] { waiter.synchronize(); }};
  const bool is_reported = errors.eventually_has("the wait goes on");
  expect(is_reported, "the wait is reported");
  gate.set_value();
  thread.join();  // the wait went on, and ended
  for (const std::string& part :
       {"wait for a stream (stream id " + std::to_string(waiter.id()) + ")",
        std::string{", holder): has work"}, std::string{", waiter): has work"},
        std::string{", unused): idle"},
        "make a stream wait for another (stream id " + std::to_string(holder.id()) + ")",
        "make a stream wait for an event (stream id " + std::to_string(holder.id()) + ")",
        std::string{"ago: launch a host function"}})
    expect(errors.count(part) == 1, "the report has \"" + part + "\"");
  waiter.synchronize();
  expect(errors.count("a wait lasts long") == 1, "a wait is reported once");
  if (failures > 0) std::puts(errors.text().c_str());
}

void hang_report_of_an_event() {
  setenv("RUNNEL_HANG_REPORT", "0.05", 1);
  const CapturedErrors errors;
  Stream holder;
  std::promise<void>& gate = hold(holder);
  const Event event = holder.record_event();
  std::thread thread{[&] { event.synchronize(); }};
  const bool is_reported =
      errors.eventually_has("wait for an event (stream id " + std::to_string(holder.id()) + ")");
  expect(is_reported, "the report names the stream that has recorded the event");
  gate.set_value();
  thread.join();
  if (failures > 0) std::puts(errors.text().c_str());
}

/// Behind a gate, `f()` waits, and is reported by those words. It is called until it is, since some
/// waits are short.
template <class F, class Prepare>
void expect_report(const CapturedErrors& errors, const std::string& words, F f, Prepare prepare) {
  Stream holder;
  std::promise<void>& gate = hold(holder);
  prepare(holder);
  std::atomic_bool is_over{false};
  std::thread thread{[&] {
    do f();
    while (!is_over);
  }};
  expect(errors.eventually_has(words), "a report has \"" + words + "\"");
  is_over = true;
  gate.set_value();
  thread.join();
  holder.synchronize();
}
template <class F>
void expect_report(const CapturedErrors& errors, const std::string& words, F f) {
  expect_report(errors, words, f, [](StreamRef) {});
}

/// Allocations wait for blocks that streams still use, and for memory on its way back.
void expect_reports_of_allocations(const CapturedErrors& errors) {
  const auto allocate = [] {
    try {
      static_cast<void>(PinnedBuffer<char>{1000});
    } catch (const std::bad_alloc&) {
    }
  };
  PinnedBuffer<char> used{1000};
  PinnedPool::set_limit(PinnedPool::statistics().in_use);
  expect_report(errors, "to allocate pinned memory", allocate, [&](StreamRef holder) {
    fill(holder, used, 'x');
    used = {};
  });
  PinnedPool::set_limit(std::numeric_limits<size_t>::max());
}

/// What waits for memory that goes back to the runtime. The host backend has no such waits.
void expect_reports_of_releases(const CapturedErrors& errors) {
  Ints values(1000), large(1UL << 19);
  std::optional<HostRegistration> registration{values};
  expect_report(errors, "to unpin memory", [&] { registration.reset(); });
  const auto cache = [](StreamRef) { static_cast<void>(PinnedBuffer<char>{1000}); };
  expect_report(errors, "to give cached pinned memory back", [] { PinnedPool::trim(); }, cache);
  const Stream stream;
  DeviceInts there{large.size(), stream};
  copy(stream, there, large);
  stream.synchronize();
  expect_report(errors, "to trim staging memory", [] { Staging::trim(); });
  const size_t most = Device::current().memory_info().total;
  if (most > 8UL << 30) return;  // to fill it takes long
  std::optional<ManagedBuffer<char>> managed{most / 4 * 3};
  const auto allocate = [&] {
    try {
      static_cast<void>(ManagedBuffer<char>{most / 4 * 3});
    } catch (const std::bad_alloc&) {
    }
  };
  expect_report(errors, "to allocate managed memory", allocate,
                [&](StreamRef) { managed.reset(); });
}

void hang_report_of_memory() {
  setenv("RUNNEL_HANG_REPORT", "0.002", 1);
  const CapturedErrors errors;
  std::optional<SharedBuffer<int>> shared{1000};
  expect_report(errors, "to free shared memory (device 0)", [&] { shared.reset(); });
  expect_reports_of_allocations(errors);
  if (Device::current().hardware_queues() != 0) expect_reports_of_releases(errors);
}

void hang_report_of_a_copy() {
  setenv("RUNNEL_HANG_REPORT", "0.002", 1);
  const CapturedErrors errors;
  Stream stream;
  std::vector<char> values(100'000);
  DeviceBuffer<char> buffer{values.size(), stream};
  stream.synchronize();
  std::optional<StreamRef> held;
  expect_report(
      errors, "to copy (stream id ", [&] { copy(*held, values, buffer, {Pageable::block}); },
      [&](StreamRef holder) { held = holder; });
}

void no_hang_report() {
  setenv("RUNNEL_HANG_REPORT", "soon", 1);
  setenv("RUNNEL_HANG_REPORTS", "1", 1);
  const CapturedErrors errors;
  expect(works(Stream{}) && works(Stream{}), "a stream works");
  expect(errors.count("there is no variable RUNNEL_HANG_REPORTS, so") == 1, "a misspelt variable");
  expect(errors.count("RUNNEL_HANG_REPORT=soon is not understood") == 1, "the value is refused");
}

void settings_not_understood() {
  setenv("RUNNEL_STAGING_CHUNK", "4 MB", 1);
  setenv("RUNNEL_STAGING_MEMORY", "0", 1);
  setenv("RUNNEL_STAGING_WORKERS", "0", 1);
  setenv("RUNNEL_CHECK", "yes", 1);
  setenv("RUNNEL_TRACE", "/dev/null", 1);
  setenv("RUNNEL_TRACE_CUPTI", "off", 1);
  const CapturedErrors errors;
  const StagingOptions options = Staging::options();
  expect(options.chunk == 16UL << 20 && options.memory == 512UL << 20 && options.workers > 0,
         "the defaults count");
  for (const char* setting : {"STAGING_CHUNK=4 MB", "STAGING_MEMORY=0", "STAGING_WORKERS=0"})
    expect(errors.count(("RUNNEL_" + std::string{setting} + " is not understood").c_str()) == 1,
           "the value is refused");
  for (const char* workers : {"65", "4K", "-1"}) {
    setenv("RUNNEL_STAGING_WORKERS", workers, 1);
    expect(Staging::options().workers == options.workers, "the default counts");
  }
  expect(errors.count("is not understood, and does not count: write a number from 1 to 64") == 4,
         "the values are refused");
  expect(works(Stream{}), "a stream works");
  expect(errors.count("RUNNEL_CHECK=yes is not understood, and the checker stays off") == 1,
         "the value is refused");
  expect(errors.count("RUNNEL_TRACE_CUPTI=off is not understood") == 1, "the value is refused");
}

int use_a_current_stream_in_the_child(const Stream& stream, std::optional<StreamGuard>& guard,
                                      std::optional<DeviceGuard>& device_guard,
                                      const StreamContext& context) {
  const auto expect_no_current_stream = [&] {
    EXPECT_FORKED(current_stream());
    EXPECT_FORKED(current_stream(stream.device()));
    EXPECT_FORKED(stream.use());
    EXPECT_FORKED(StreamGuard{stream});
    EXPECT_FORKED(StreamContext{});
    EXPECT_FORKED(StreamContext::Guard{context});
    EXPECT_FORKED(Device::current());
    EXPECT_FORKED(DeviceGuard{stream.device()});
  };
  expect_no_current_stream();
  EXPECT_FORKED(guard->reset(stream));
  EXPECT_FORKED(guard->original_stream());
  guard.reset();
  expect_no_current_stream();
  device_guard.reset();
  expect_no_current_stream();
  return failures;
}

void fork_inside_a_guard() {
  const Device last{Device::count() - 1};
  Stream outer, inner{last};
  outer.use();
  const StreamContext context;
  std::optional<DeviceGuard> device_guard{std::in_place, last};
  std::optional<StreamGuard> guard{std::in_place, inner};
  expect(in_child([&] {
           return use_a_current_stream_in_the_child(inner, guard, device_guard, context);
         }) == 0,
         "every call in the child was refused");
  expect(current_stream() == inner, "the parent's current stream is unchanged");
  guard.reset();
  device_guard.reset();
  expect(current_stream() == outer, "the parent's guards restore what they found");
}

void fork_in_a_host_function() {
  Stream stream;
  int status = -1;
  stream.launch_host_func([&] {
    status = in_child([&] {
      alarm(20);
      EXPECT_FORKED(stream.query());
      EXPECT_FORKED(current_stream());
      EXPECT_FORKED(stream.use());
      return failures;
    });
  });
  stream.synchronize();
  expect(status == 0, "every call in the child was refused");
}

void static_guard() {
  static Stream inner{Device{Device::count() - 1}};
  static const StreamGuard with{inner};
  expect(current_stream() == inner, "the guarded stream is current");
}

void thread_local_guard() {
  static Stream inner{Device{Device::count() - 1}};
  // Made before everything that the library keeps for this thread, and therefore destroyed after
  // it.
  static thread_local std::optional<StreamGuard> with;
  with.emplace(inner);
  static_cast<void>(StreamRef::per_thread_default(inner.device()));
  expect(current_stream() == inner, "the guarded stream is current");
}

#define CASE(name, ...) {#name, name},
constexpr std::pair<const char*, void (*)()> cases[] = {
#include "exit_cases.inc"
    CASE(use_once)};

}  // namespace

// A leak checker stops all threads at the end of a process. In a forked child it may wait for
// threads that exist in the parent only.
extern "C" const char* __lsan_default_options() { return "detect_leaks=0"; }

int main(int argc, char** argv) try {
  for (const auto& [name, run] : cases)
    if (argc == 2 && std::strcmp(argv[1], name) == 0) {
      run();
      return finish();
    }
  if (const int result = run_shared_case(argc, argv); result >= 0) return result;
  std::fprintf(stderr, "usage: exit_cases <case>\n");
  return 97;
} catch (const std::exception& error) {
  std::printf("failed: thrown: %s\n", error.what());
  return 98;
}
