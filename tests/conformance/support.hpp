// SPDX-License-Identifier: Apache-2.0
/// What the test cases share. Two rules make the cases valid on a GPU too:
/// 1. A test closes one gate at a time, because a runtime may run all host functions on one thread.
/// 2. A test allocates memory before it closes a gate and frees it after the gate is open, because
///    both may wait for the device. So declare buffers first and the gate last.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <iterator>
#include <latch>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <runnel/runnel.hpp>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "../support/eventually.hpp"
#include "../support/gate.hpp"
#include "../support/loops.hpp"

namespace conformance {
using namespace runnel;
using namespace std::chrono_literals;
using std::size_t, std::uint32_t, std::uint64_t, std::uintptr_t;
using test_support::nth, test_support::range, test_support::repeat;
using Clock = std::chrono::steady_clock;

inline constexpr size_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib,
                        huge = std::numeric_limits<size_t>::max();
using Bytes = std::vector<unsigned char>;
using DeviceBytes = DeviceBuffer<unsigned char>;
using PinnedBytes = PinnedBuffer<unsigned char>;
using Ints = std::vector<int>;
using DeviceInts = DeviceBuffer<int>;
using PinnedInts = PinnedBuffer<int>;
using Streams = std::vector<Stream>;

/// Skips the test if the condition holds, for the reason behind it.
#define SKIP_IF(condition, ...) \
  if (condition) GTEST_SKIP() << __VA_ARGS__

/// For values that a call returns and that say nothing here.
template <class... T>
void drop(T&&...) {}

std::vector<Device> all_devices();
/// The default streams of the current device, and of the calling thread on it.
inline StreamRef default_stream() { return Device::current().default_stream(); }
inline StreamRef thread_default() { return StreamRef::per_thread_default(Device::current()); }
/// Enqueues a host function that does nothing.
inline void enqueue_nothing(StreamRef stream) {
  stream.launch_host_func([] {});
}

/// Enqueues a host function that resets a pointer or an optional.
template <class Owner>
void enqueue_drop(StreamRef stream, Owner owner) {
  stream.launch_host_func([taken = std::move(owner)]() mutable { taken.reset(); });
}
/// A function for overlap().
inline void copy_chunk(StreamRef stream, DeviceSpan<const int> in, DeviceSpan<int> out) {
  copy(stream, out, in);
}

/// The longest time that a test waits for anything. A test that waits longer fails.
inline constexpr std::chrono::seconds patience = 30s;

/// Allocates and overwrites so much device memory that it would reuse a block that was freed too
/// early.
inline void churn(StreamRef stream, size_t bytes) {
  repeat(8, [&] {
    DeviceBytes other{bytes, stream};
    fill_bytes(stream, other.data(), 0xEE, bytes);
  });
}

/// Blocks streams until the test opens it. It fails the test if a stream had to continue because
/// `patience` was over.
class Gate : public test_support::Gate {
 public:
  Gate() : test_support::Gate{patience} {}
  /// As close_on() of a gate that was open.
  explicit Gate(StreamRef stream, HostFunctionOptions options = {}) : Gate{} {
    close_on(stream, options);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    EXPECT_FALSE(was_forced())
        << "the gate was never opened: the test waited for work that is behind the gate";
  }

  /// Blocks what is enqueued on the stream after this call until open().
  void close_on(StreamRef stream, HostFunctionOptions options = {}) {
    stream.launch_host_func(blocking_function(), options);
  }
  /// Opens, and waits for a stream, an event or a device.
  template <class Work>
  void open_and_wait(const Work& work) {
    open();
    work.synchronize();
  }
};

/// Expects a stream or an event to be complete, or not to be.
#define EXPECT_DONE(...) EXPECT_TRUE((__VA_ARGS__).query())
#define EXPECT_PENDING(...) EXPECT_FALSE((__VA_ARGS__).query())
/// Expects the gate to be closed: what was called did not wait for it.
#define EXPECT_CLOSED(gate) EXPECT_FALSE((gate).is_open())
/// Expects the stream to wait at the gate, opens that and waits for the stream.
#define EXPECT_BEHIND(gate, ...)       \
  do {                                 \
    EXPECT_PENDING(__VA_ARGS__);       \
    (gate).open_and_wait(__VA_ARGS__); \
  } while (false)
/// Expects the stream to complete its work in time.
#define EXPECT_COMPLETES(...) EXPECT_TRUE((__VA_ARGS__).synchronize_for(patience))

/// Entries in the order in which streams wrote them. The entries live as long as a stream can still
/// write one.
class Log {
 public:
  void write(StreamRef stream, std::string entry) const {
    stream.launch_host_func([state = state_, text = std::move(entry)]() mutable {
      const std::lock_guard lock{state->mutex};
      state->entries.push_back(std::move(text));
    });
  }
  std::vector<std::string> entries() const {
    const std::lock_guard lock{state_->mutex};
    return state_->entries;
  }
  size_t size() const { return entries().size(); }
  bool has(const std::string& entry) const {
    const auto all = entries();
    return std::ranges::find(all, entry) != all.end();
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<std::string> entries;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

using Entries = std::vector<std::string>;

/// A number that begins at 0, for functions of which each keeps it alive.
inline auto shared_count() { return std::make_shared<std::atomic_int>(0); }

/// Whether the text says what could not be done, and why.
inline void expect_sentence(const Error& error) {
  const std::string text = error.what(), operation = error.operation(),
                    begin = "runnel: could not " + operation + ": ";
  EXPECT_EQ(text.find(begin), 0U) << text;
  EXPECT_GT(text.size(), begin.size()) << text;
  EXPECT_NE(operation.find("the "), 0U) << "this is a reason: " << text;
}

/// The code of the Error that `f` throws; `nothing_thrown` if it throws nothing. Checks
/// what the error says.
template <class F>
[[nodiscard]] std::error_code code_of(F&& f) {
  try {
    static_cast<void>(std::forward<F>(f)());
    return {};
  } catch (const Error& error) {
    expect_sentence(error);
    return error.code();
  }
}
inline const std::error_code nothing_thrown{};
/// The text of the Error that `f` throws; "" if it throws nothing.
template <class F>
std::string text_of(F&& f) {
  try {
    static_cast<void>(std::forward<F>(f)());
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// Expects the expression to throw an Error with this code, and the error to say what it
/// should: EXPECT_ERROR(invalid_argument, copy(stream, to, from)).
#define EXPECT_ERROR(code, ...) \
  EXPECT_EQ(code_of([&] { static_cast<void>(__VA_ARGS__); }), errc::code)
/// Expects the statement to throw no runnel::Error.
#define EXPECT_NO_ERROR(...) EXPECT_EQ(code_of([&] { __VA_ARGS__; }), nothing_thrown)

/// The text of the Error that the expression throws.
#define TEXT_OF(...) text_of([&] { static_cast<void>(__VA_ARGS__); })
/// Expects the text to have that part.
#define EXPECT_SAYS(text, part) EXPECT_PRED2(says, text, part)
inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}
/// Expects the current stream, or device, to be this one.
#define EXPECT_CURRENT(...) EXPECT_EQ(current_stream(), __VA_ARGS__)
#define EXPECT_CURRENT_DEVICE(...) EXPECT_EQ(Device::current(), __VA_ARGS__)
/// Expects a graph to have so many nodes, and an address to be of this kind of memory.
#define EXPECT_NODES(graph, count) EXPECT_EQ((graph).node_count(), count)
#define EXPECT_KIND(address, expected) EXPECT_EQ(pointer_info(address).kind, MemoryKind::expected)
/// Expects the log to have these entries, in this order.
#define EXPECT_LOG(log, ...) EXPECT_EQ((log).entries(), (Entries{__VA_ARGS__}))

/// Blocks `held` with a gate, calls `link()`, and expects that later work of `waiter` waits for the
/// gate.
template <class F>
void expect_waits(StreamRef held, StreamRef waiter, F&& link) {
  Log log;
  Gate gate{held};
  log.write(held, "held");
  link();
  log.write(waiter, "waiter");
  EXPECT_BEHIND(gate, waiter);
  EXPECT_LOG(log, "held", "waiter");
}

/// How many elements are not `value`.
template <class Range, class T>
std::ptrdiff_t others(const Range& range, const T& value) {
  return std::ssize(range) - std::count(std::begin(range), std::end(range), value);
}

/// Expects the elements of a range to be this value, and two ranges to have the same ones.
#define EXPECT_ALL(...) EXPECT_EQ(others(__VA_ARGS__), 0)
#define EXPECT_SAME(...) EXPECT_TRUE(std::ranges::equal(__VA_ARGS__))

/// Writes `first` and the numbers after it.
template <class Range, class T>
void count_from(Range&& range, T first) {
  std::iota(range.begin(), range.end(), first);
}

/// A native stream that no Stream owns, as another library would make it.
struct Foreign {
  native::stream handle = Stream{}.release();
  Foreign() = default;
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  ~Foreign() {
    if (handle != nullptr) drop(wrap(Ownership::take));
  }
  [[nodiscard]] Stream wrap(Ownership ownership = Ownership::borrow) const {
    return Stream::from_native(handle, Device::current(), ownership);
  }
};

/// The elements, once the stream has come to the copy.
template <class Buffer>
auto read_back(StreamRef stream, const Buffer& from) {
  std::vector<std::remove_const_t<std::remove_pointer_t<decltype(from.data())>>> all(from.size());
  copy(stream, all, from);
  stream.synchronize();
  return all;
}

/// A Stream that takes the handle.
[[nodiscard]] inline Stream take(native::stream handle) {
  return Stream::from_native(handle, Device::current(), Ownership::take);
}
/// A Stream that borrows the handle.
[[nodiscard]] inline Stream borrow(native::stream handle) {
  return Stream::from_native(handle, Device::current(), Ownership::borrow);
}
[[nodiscard]] inline Stream borrow(StreamRef stream) {
  return Stream::from_native(stream.native(), stream.device(), Ownership::borrow);
}

/// Notes how long the machine stands still, as a virtual one may do for seconds. A test of how long
/// something takes subtracts that.
class Standstills {
 public:
  Standstills() = default;
  Standstills(const Standstills&) = delete;
  Standstills& operator=(const Standstills&) = delete;
  ~Standstills() { drop(longest()); }
  /// The longest one until now. Ends the notes.
  Clock::duration longest() {
    is_over_ = true;
    if (beats_.joinable()) beats_.join();
    return longest_;
  }

 private:
  std::atomic_bool is_over_{false};
  Clock::duration longest_{};
  std::thread beats_{[this] {
    for (auto last = Clock::now(); !is_over_;) {
      std::this_thread::sleep_for(1ms);
      longest_ = std::max(longest_, Clock::now() - std::exchange(last, Clock::now()));
    }
  }};
};

/// Waits until `holds()` is true. Returns false if that takes longer than `patience`.
template <class Predicate>
[[nodiscard]] bool eventually(Predicate&& holds) {
  return test_support::eventually(patience, std::forward<Predicate>(holds));
}

/// Expects the expression to be true at once or a little later.
#define EXPECT_EVENTUALLY(...) EXPECT_TRUE(eventually([&] { return __VA_ARGS__; }))

/// Runs `f(0)` to `f(n - 1)` at the same time, each on a thread of its own.
template <class F>
void on_threads(int n, F&& f) {
  std::latch start{n};
  std::vector<std::thread> threads;
  for (int i : range(n))
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        f(i);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "a thread threw: " << error.what();
      }
    });
  for (auto& thread : threads) thread.join();
}
template <class F>
void on_thread(F&& f) {
  on_threads(1, [&](int) { f(); });
}

/// Requires: `f` waits for work behind the gate. Opens the gate, and returns whether `f` returned
/// only after that. An `f` that does not wait gets 20 ms to return too early; an `f` that waits
/// passes at any speed.
template <class F>
[[nodiscard]] bool held_by(Gate& gate, F&& f) {
  std::atomic_bool returned{false};
  bool was_open = false;
  std::thread thread{[&] {
    try {
      f();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "the waiting function threw: " << error.what();
    }
    was_open = gate.is_open();
    returned = true;
  }};
  static_cast<void>(test_support::eventually(20ms, [&] { return returned.load(); }));
  gate.open();
  thread.join();
  return was_open;
}

/// Expects the statement to return only once the gate is open.
#define EXPECT_HELD(gate, ...) EXPECT_TRUE(held_by(gate, [&] { __VA_ARGS__; }))

/// Calls `f(wait)` in a completion function. In `wait()`, a host function ends the stream: the
/// thread that would take the next steps of that end runs `f`. Expects `f` to return.
template <class F>
void end_beside_a_completion(std::optional<Stream>& stream, F f) {
  const Stream other, third;
  std::promise<void> begun, ended, over;
  third.on_complete([&](const Outcome&) {
    f([&] {
      begun.set_value();
      ended.get_future().wait();
    });
    over.set_value();
  });
  begun.get_future().wait();
  other.launch_host_func([&] { stream.reset(); });
  other.synchronize();
  ended.set_value();
  EXPECT_EQ(over.get_future().wait_for(10s), std::future_status::ready);
}

/// Bytes that depend on their index and on the seed.
Bytes pattern(size_t size, unsigned seed = 1);

/// Enqueues a host function that runs for `time`.
void occupy(StreamRef stream, std::chrono::milliseconds time);

/// Makes call `number` of operator new throw, counted from 1 and over all threads. Requires: there
/// is no other AllocationFault.
class AllocationFault {
 public:
  explicit AllocationFault(long number) noexcept;
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
  ~AllocationFault();
  /// Whether that call was made, and so failed.
  bool happened() const noexcept;
};

/// Makes the start of every thread fail, except the first `spared` ones. Requires: there is no
/// other ThreadFault.
class ThreadFault {
 public:
  explicit ThreadFault(long spared = 0) noexcept;
  ThreadFault(const ThreadFault&) = delete;
  ThreadFault& operator=(const ThreadFault&) = delete;
  ~ThreadFault();
};

/// The number of calls of operator new that this thread has made, those in the library included.
size_t allocations() noexcept;
/// Bytes of the heap in use; 0 if the C library does not tell.
size_t heap_in_use() noexcept;
/// Above what allocators keep for themselves, and below a leak of a few bytes in each of 10,000
/// rounds.
inline constexpr size_t heap_slack = size_t{512} << 10;

/// Expects many rounds to leave nothing behind. `settle` waits for each hundred of them.
template <class Round, class Settle = void (*)()>
void expect_no_growth(int rounds, Round round, Settle settle = [] {}) {
  const auto run = [&](int count) {
    for (int i = 1; i <= count; ++i) {
      round();
      if (i % 100 == 0) settle();
    }
  };
  run(2000);
  const LiveObjects objects = live_objects();
  const auto heap = heap_in_use();
  run(rounds);
  EXPECT_EQ(live_objects(), objects);
  EXPECT_LE(heap_in_use(), heap + heap_slack);
}

/// Whether the environment has RUNNEL_LONG_TESTS=1, which selects sizes that take minutes.
bool long_tests();
/// Whether host functions of other streams can run while a host function blocks. A GPU's runtime
/// may run one at a time.
bool host_functions_overlap();

/// Whether streams run on threads of this process instead of a GPU.
bool streams_are_threads();

/// Whether copies of pageable memory are staged, and the system can tell whether a page is
/// accessible (Linux 6.11).
bool pages_can_be_asked_about();

/// The counts that a test must leave unchanged. Pooled events are not included, because the library
/// keeps them for reuse.
std::string owned_objects();

/// Checks that each test leaves the current device, the current stream and the number of live
/// objects unchanged.
class Conformance : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Enqueues a fill and waits for it; false if that takes longer than `patience`. A fill runs even
  /// if a host function is blocked.
  bool runs(StreamRef stream);
  static Device device() { return Device::current(); }

 private:
  struct Found {
    Device device;
    StreamRef stream;
    std::string objects;
  };
  std::optional<PinnedBytes> scratch_;
  std::atomic<size_t> next_{0};
  std::optional<Found> found_;
};

/// Expects the stream to run such a fill in time.
#define EXPECT_RUNS(...) EXPECT_TRUE(runs(__VA_ARGS__))

/// Skips the test if there is only one device.
class TwoDevices : public Conformance {
 protected:
  void SetUp() override;
  static constexpr Device first{0};
  static constexpr Device second{1};
};

}  // namespace conformance
