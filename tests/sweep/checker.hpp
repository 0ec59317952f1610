// SPDX-License-Identifier: Apache-2.0
/// What holds after each call into the library, whichever runtime call beneath it failed (docs/testing.md): one runnel::Error with the
/// operation, the runtime's number and the code that follows from it; counts, current device, current stream and last error as before;
/// the same call works when asked again.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <runnel/runnel.hpp>
#include <string>
#include <thread>
#include <utility>

#include "../standin/inspect.hpp"

namespace sweep {

/// A wait that takes longer is a hang.
inline constexpr std::chrono::seconds patience{5};

template <class Predicate>
[[nodiscard]] bool eventually(Predicate&& holds) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  return true;
}

/// Counts its instances and calls: each must be destroyed once, and called once if the stream took it.
class Callable {
 public:
  explicit Callable(std::atomic<int>* ran = nullptr) noexcept : ran_{ran} { ++alive(); }
  Callable(const Callable& other) noexcept : ran_{other.ran_} { ++alive(); }
  Callable(Callable&& other) noexcept : ran_{other.ran_} { ++alive(); }
  Callable& operator=(const Callable&) = delete;
  ~Callable() {
    if (std::exchange(destroyed_, true)) std::abort();  // twice
    --alive();
  }
  void operator()() const {
    if (destroyed_) std::abort();
    if (ran_ != nullptr) ++*ran_;
  }
  [[nodiscard]] static std::atomic<int>& alive() noexcept {
    static std::atomic<int> count{0};
    return count;
  }

 private:
  std::atomic<int>* ran_;
  bool destroyed_ = false;
};

class Checker {
 public:
  Checker();

  /// Calls `f`, which must leave nothing behind when it throws, and again if the fault came up in it. False: the runtime is lost, and the
  /// scenario should end here.
  template <class F>
  [[nodiscard]] bool attempt(const char* what, F&& f);
  /// What a scenario finds wrong by itself.
  [[gnu::format(printf, 2, 3)]] void violation(const char* format, ...);
  void require(bool holds, const char* what) {
    if (!holds) violation("%s", what);
  }
  /// Whether data and order can be relied on: no lost context.
  [[nodiscard]] bool sound() const { return !view().sticky; }
  /// Whether the fault has come up.
  [[nodiscard]] bool faulted() const { return view().faulted; }
  /// That many default streams, which never end, keep the event that others wait for.
  void keeps_events(std::size_t count) { kept_events_ = count; }
  /// The library makes that many streams of its own, for memory that outlives its stream or for overlap(), and keeps them.
  void keeps_streams(std::size_t count) { kept_streams_ = count; }
  /// Once everything is destroyed.
  void finish();
  [[nodiscard]] int report(const char* scenario) const;

 private:
  struct Fault {
    std::string form = "none";
    int code = 0;
  };
  struct Snapshot {
    runnel::LiveObjects live;
    int device;
    std::uint64_t stream;
    int last_error;
    int capture_mode;
  };
  [[nodiscard]] StandinView view() const;
  [[nodiscard]] Snapshot snapshot() const;
  void compare(const char* what, const Snapshot& before, const StandinView& then);
  void thrown(const char* what, const runnel::Error& error);
  void absorbed(const char* what, const StandinView& now);

  void (*inspect_)(StandinView*);
  Fault fault_;
  std::size_t kept_events_ = 0;
  std::size_t kept_streams_ = 0;
  int violations_ = 0;
  int thrown_ = 0;
  int absorbed_ = 0;
  std::string seen_;
};

template <class F>
bool Checker::attempt(const char* what, F&& f) {
  for (int round = 0; round < 2; ++round) {
    const Snapshot before = snapshot();
    const StandinView then = view();
    try {
      f();
      const StandinView now = view();
      if (now.faulted && !then.faulted) absorbed(what, now);
      if (!now.sticky && now.capture_mode != then.capture_mode) violation("%s: another capture mode is left behind", what);
      return true;
    } catch (const runnel::Error& error) {
      thrown(what, error);
    } catch (const std::exception& error) {
      violation("%s: threw what is no runnel::Error: %s", what, error.what());
    } catch (...) {
      violation("%s: threw something unknown", what);
    }
    compare(what, before, then);
    if (!sound()) return false;
    if (violations_ > 20) return false;
  }
  violation("%s: does not work when asked again", what);
  return false;
}

}  // namespace sweep
