// SPDX-License-Identifier: Apache-2.0
/// What the cases share. Two rules keep them true on a GPU as well: order is shown with one closed gate at a time (a runtime may run
/// all host functions on one thread), and memory is allocated before a gate closes and freed after it opened (both may wait for the
/// device), so declare buffers first and the gate last.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <runnel/runnel.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace conformance {

/// No wait of a test ends before this but by what it waits for; a test that runs into it fails.
inline constexpr std::chrono::seconds patience{30};

/// Holds streams until opened. It opens when it dies, and by itself when patience ends, so that no failure becomes a hang.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    EXPECT_FALSE(state_->forced) << "the gate had to be forced: something waited for work behind it";
  }

  /// Work submitted to the stream after this waits for open().
  void close_on(runnel::StreamRef stream) {
    stream.launch_host_func([state = state_] {
      std::unique_lock lock{state->mutex};
      ++state->reached;
      state->changed.notify_all();
      if (!state->changed.wait_for(lock, patience, [&] { return state->open; })) state->forced = true;
    });
  }
  void open() {
    const std::lock_guard lock{state_->mutex};
    state_->open = true;
    state_->changed.notify_all();
  }
  [[nodiscard]] bool is_open() const {
    const std::lock_guard lock{state_->mutex};
    return state_->open || state_->forced;
  }
  /// Waits until a stream stands at the gate, so that the function which waits there is the running task.
  [[nodiscard]] bool reached() const {
    std::unique_lock lock{state_->mutex};
    return state_->changed.wait_for(lock, patience, [&] { return state_->reached > 0; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int reached = 0;
    bool open = false;
    std::atomic<bool> forced = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Entries in the order in which streams came to write them. What streams still hold of it outlives the test.
class Log {
 public:
  void write(runnel::StreamRef stream, std::string entry) const {
    stream.launch_host_func([state = state_, text = std::move(entry)]() mutable {
      const std::lock_guard lock{state->mutex};
      state->entries.push_back(std::move(text));
    });
  }
  [[nodiscard]] std::vector<std::string> entries() const {
    const std::lock_guard lock{state_->mutex};
    return state_->entries;
  }
  [[nodiscard]] std::size_t size() const { return entries().size(); }
  [[nodiscard]] bool has(const std::string& entry) const {
    const auto all = entries();
    return std::find(all.begin(), all.end(), entry) != all.end();
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<std::string> entries;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

using Entries = std::vector<std::string>;

/// The code of the runnel::Error that `f` throws, 0 if it throws nothing. What is thrown must say what was attempted.
template <class F>
[[nodiscard]] std::error_code code_of(F&& f) {
  try {
    static_cast<void>(std::forward<F>(f)());
    return {};
  } catch (const runnel::Error& error) {
    EXPECT_STRNE(error.what(), "");
    EXPECT_STRNE(error.operation(), "");
    return error.code();
  }
}
inline const std::error_code nothing_thrown{};

/// For what other threads do in their own time.
template <class Predicate>
[[nodiscard]] bool eventually(Predicate&& holds) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Runs `f(0)` to `f(n - 1)` on threads of their own, all at once.
template <class F>
void on_threads(int n, F&& f) {
  std::latch start{n};
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        f(i);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "thrown on a thread: " << error.what();
      }
    });
  for (auto& thread : threads) thread.join();
}
template <class F>
void on_thread(F&& f) {
  on_threads(1, [&](int) { f(); });
}

/// Whether `f`, which waits for what the gate holds, returned only after the gate was opened. The clock gives a wrong `f` the time to
/// return too early; a right one passes at any speed.
template <class F>
[[nodiscard]] bool held_by(Gate& gate, F&& f) {
  std::atomic<bool> returned{false};
  bool was_open = false;
  std::thread thread{[&] {
    try {
      f();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "thrown while waiting: " << error.what();
    }
    was_open = gate.is_open();
    returned = true;
  }};
  const auto chance = std::chrono::steady_clock::now() + std::chrono::milliseconds{20};
  while (!returned && std::chrono::steady_clock::now() < chance) std::this_thread::yield();
  gate.open();
  thread.join();
  return was_open;
}

/// Bytes that tell their place, and other ones for each seed.
[[nodiscard]] std::vector<unsigned char> pattern(std::size_t size, unsigned seed = 1);

/// Keeps a stream, and the time between two events, busy for that long.
void occupy(runnel::StreamRef stream, std::chrono::milliseconds time);

/// While it lives, one call of operator new on any thread fails: the one of this number, counted from 1. One at a time.
class AllocationFault {
 public:
  explicit AllocationFault(long number) noexcept;
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
  ~AllocationFault();
  /// Whether so many calls were made.
  [[nodiscard]] bool happened() const noexcept;
};

/// While it lives, no thread can be started, on any thread, after the first `spared` ones. One at a time.
class ThreadFault {
 public:
  explicit ThreadFault(long spared = 0) noexcept;
  ThreadFault(const ThreadFault&) = delete;
  ThreadFault& operator=(const ThreadFault&) = delete;
  ~ThreadFault();
};

/// Calls of operator new on this thread so far, in the library too.
[[nodiscard]] std::size_t allocations() noexcept;
/// Bytes of the heap in use; 0 where the C library does not say.
[[nodiscard]] std::size_t heap_in_use() noexcept;
/// A leak of a few bytes in each of 10,000 rounds is above this, what allocators keep for themselves below.
inline constexpr std::size_t heap_slack = std::size_t{512} << 10;

/// Whether RUNNEL_LONG_TESTS=1 asks for the sizes that take minutes.
[[nodiscard]] bool long_tests();
/// Whether a host function that waits leaves host functions of other streams running. A GPU's runtime need not.
[[nodiscard]] bool host_functions_overlap();

/// Whether streams are threads of this process instead of a GPU's queues.
[[nodiscard]] bool streams_are_threads();

/// Whether copies of ordinary memory are staged, and the system tells what it would do to whoever touches a page.
[[nodiscard]] bool pages_can_be_asked_about();

/// All counts that must be as before when a test ends; warm events stay, so they are not among them.
[[nodiscard]] std::string owned_objects();

/// Each test must leave the current device, the current stream and the number of live objects as it found them.
class Conformance : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Whether the stream gets a piece of work done, now, that is no host function.
  [[nodiscard]] bool runs(runnel::StreamRef stream);
  [[nodiscard]] static runnel::Device device() { return runnel::Device::current(); }

 private:
  struct Found {
    runnel::Device device;
    runnel::StreamRef stream;
    std::string objects;
  };
  std::optional<runnel::PinnedBuffer<unsigned char>> scratch_;
  std::atomic<std::size_t> next_{0};
  std::optional<Found> found_;
};

/// Skips where there is one device only.
class TwoDevices : public Conformance {
 protected:
  void SetUp() override;
  static constexpr runnel::Device first{0};
  static constexpr runnel::Device second{1};
};

}  // namespace conformance
