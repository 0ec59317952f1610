// SPDX-License-Identifier: Apache-2.0
/// Checks the library after each call, whichever runtime call failed (README.md). The call throws
/// one runnel::Error with the operation, the runtime's error number and the code for that number.
/// Counts, current device, current stream and last error are unchanged. The same call works when it
/// is repeated. If an allocation or the start of a thread fails instead (exhaustion.hpp), the call
/// throws std::bad_alloc, which the Error "out of memory" is too. If the library of collective
/// operations fails instead, the error has its text.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <runnel/runnel.hpp>
#include <string>
#include <utility>

#include "../../support/eventually.hpp"
#include "../../support/loops.hpp"
#include "../../support/standin/inspect.hpp"
#include "exhaustion.hpp"

namespace sweep {

using std::size_t;
using test_support::range, test_support::repeat;

/// A wait that takes longer is a hang.
inline constexpr std::chrono::seconds patience{5};

template <class Predicate>
[[nodiscard]] bool eventually(Predicate&& holds) {
  return test_support::eventually(patience, std::forward<Predicate>(holds));
}

/// A callable that counts its instances and calls. Each instance must be destroyed once, and called
/// once if it was enqueued.
class Callable {
 public:
  explicit Callable(std::atomic_int* ran = nullptr) noexcept : ran_{ran} { ++alive(); }
  Callable(const Callable& other) noexcept : ran_{other.ran_} { ++alive(); }
  Callable(Callable&& other) noexcept : ran_{other.ran_} { ++alive(); }
  Callable& operator=(const Callable&) = delete;
  ~Callable() {
    if (std::exchange(destroyed_, true)) std::abort();  // destroyed twice
    --alive();
  }
  void operator()() const {
    if (destroyed_) std::abort();
    if (ran_ != nullptr) ++*ran_;
  }
  static std::atomic_int& alive() noexcept {
    static std::atomic_int count{0};
    return count;
  }

 private:
  std::atomic_int* ran_;
  bool destroyed_ = false;
};

/// Ends a scenario: the runtime is lost, or all memory or threads are.
struct Over {};

class Checker {
 public:
  Checker();

  /// Calls `f`, and calls it again if it throws because of the fault. A call that throws must leave
  /// nothing behind. Returns false if the runtime is lost, or all memory or threads are: then the
  /// scenario should end. If one allocation or thread start is to fail, it fails in several calls
  /// in turn, so that a call which leaves a block of memory behind each time is found.
  template <class F>
  [[nodiscard]] bool is_done(const char* what, F&& f);
  /// The same. @throws Over if the scenario should end
  template <class F>
  void attempt(const char* what, F&& f) {
    if (!is_done(what, std::forward<F>(f))) throw Over{};
  }
  /// Attempts to make an object of the scenario's, and to wait for one.
  template <class T, class... Arguments>
  void make(const char* what, std::optional<T>& object, const Arguments&... arguments) {
    attempt(what, [&] { object.emplace(arguments...); });
  }
  template <class T>
  void synchronize(const T& object) {
    if (!has_synchronized(object)) throw Over{};
  }
  /// False if the scenario should end.
  template <class T>
  [[nodiscard]] bool has_synchronized(const T& object) {
    return is_done("synchronize", [&] { object.synchronize(); });
  }
  /// Reports a violation.
  [[gnu::format(printf, 2, 3)]] void violation(const char* format, ...);
  void require(bool holds, const char* what) {
    if (!holds) violation("%s", what);
  }
  /// Whether the runtime still works, so that data and order can be checked. False once the context
  /// is lost.
  bool sound() const { return !view().sticky; }
  /// Whether the last exception said that the device is lost.
  bool told_lost() const { return told_lost_; }
  /// Whether the fault has occurred.
  bool faulted() const { return view().faulted; }
  bool has_failed_in(const char* call) const {
    return std::strstr(view().fault_call, call) != nullptr;
  }
  /// How many calls have thrown.
  int thrown() const { return thrown_; }
  /// So many default streams, which are never destroyed, may keep an event.
  size_t kept_events = 0;
  /// The library may keep so many streams of its own, for memory that outlives its stream or for
  /// overlap().
  size_t kept_streams = 0;
  /// So many blocks of a resource need not be given back if the runtime is lost, or if a capture
  /// may use them: they stay counted.
  size_t kept_blocks = 0;
  /// So many callables that a graph keeps need not be destroyed if the runtime is lost: it can then
  /// never be known that its launches are complete.
  int kept_objects = 0;
  /// Operations enqueue several functions from now on. If the device is lost in between, those that
  /// its streams have taken are discarded with the streams.
  bool enqueues_several = false;
  /// Completions are watched for from now on.
  bool watches = false;
  /// Small copies of pageable memory from now on: their rings are blocks of the pinned pool.
  bool copies_through_pool = false;
  /// `count` streams wait for something outside. The position behind the wait is recorded at once,
  /// and kept until a later wait or pageable copy asks it. Without it, copies wait longer.
  void waits_outside(size_t count) {
    waits_outside_ = true;
    kept_events = count;
  }
  /// The trace is on from now on. Requires: the scenario itself makes no event and queries no
  /// stream.
  void traces() {
    traces_ = true;
    kept_events += 1;  // the clock of the device
  }
  /// Communicators are in use from now on. Their threads query events and give up objects later,
  /// and `batons` events stay with devices or communicators for the order of operations.
  void communicates(size_t batons) {
    communicates_ = true;
    batons_ = batons;
  }
  /// A communicator says that it is broken, which is an answer to a failed operation.
  bool is_told = false;
  /// From now on the library's own threads abort communicators, and drop what NCCL returns.
  bool aborts = false;
  /// Final checks. Requires: the scenario has destroyed all its objects, and exhaustion::recover()
  /// was called.
  void finish();
  int report(const char* scenario) const;

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
  StandinView view() const;
  Snapshot snapshot() const;
  void compare(const char* what, const Snapshot& before, const StandinView& then);
  void thrown(const char* what, const runnel::Error& error);
  void thrown_by_ccl(const char* what, const runnel::Error& error);
  void thrown_without_memory(const char* what, const std::bad_alloc& error);
  /// After a call has thrown. True if the call is to be repeated.
  bool goes_on(const char* what, const Snapshot& before, const StandinView& then,
               long calls_before);
  void watch_blocks(const char* what);
  void check_device_memory();
  void absorbed(const char* what, const StandinView& now);
  StandinCclView ccl_view() const;
  void check_communicators();
  /// How many communicators may stay: without an answer, or without a thread, the library cannot
  /// destroy them.
  size_t kept_communicators() const;

  void (*inspect_)(StandinView*);
  void (*inspect_ccl_)(StandinCclView*);
  Fault fault_;
  bool fails_ccl_ = false;  // the fault is one of the library of collective operations
  bool waits_outside_ = false;
  bool traces_ = false;
  bool communicates_ = false;
  size_t batons_ = 0;
  int violations_ = 0;
  int thrown_ = 0;
  bool told_lost_ = false;
  int absorbed_ = 0;
  std::string seen_;
  // A leak adds blocks at each repeated failure of the same call. What the library keeps for reuse
  // mostly grows a few times only. But threads exchange the blocks of host functions in batches of
  // 32, so that a few threads can keep a hundred.
  static constexpr int repeated_faults = 48, repeated_faults_while_growing = 192;
  int repeated_ = 0;
  bool blocks_always_grew_ = true;
  size_t first_blocks_ = 0, blocks_ = 0;  // after the first failure, and after the last
};

/// Attempts a call, which is its own name. Requires: the Checker is called `c`.
#define ATTEMPT(...) c.attempt(#__VA_ARGS__, [&] { static_cast<void>(__VA_ARGS__); })
/// Attempts a question, and requires that the answer is yes.
#define REQUIRE(holds, what) ATTEMPT(c.require(holds, what))
/// Declares an optional object, and attempts to make it from the arguments.
#define MAKE(type, name, ...) \
  std::optional<type> name;   \
  c.make(#type, name __VA_OPT__(, ) __VA_ARGS__)

template <class F>
bool Checker::is_done(const char* what, F&& f) {
  const int rounds = exhaustion::is_planned() ? 2 + repeated_faults_while_growing : 2;
  for (int round = 0; round < rounds; ++round) {
    const Snapshot before = snapshot();
    const StandinView then = view();
    const long calls_before = exhaustion::calls();
    try {
      f();
      const StandinView now = view();
      if (now.faulted && !then.faulted) absorbed(what, now);
      if (!now.sticky && now.capture_mode != then.capture_mode)
        violation("%s: another capture mode is left behind", what);
      return true;
    } catch (const runnel::Error& error) {
      thrown(what, error);
    } catch (const std::bad_alloc& error) {
      thrown_without_memory(what, error);
    } catch (const std::exception& error) {
      violation("%s: threw an exception that is no runnel::Error: %s", what, error.what());
    } catch (...) {
      violation("%s: threw something that is no std::exception", what);
    }
    if (!goes_on(what, before, then, calls_before)) return false;
  }
  violation("%s: the repeated call fails", what);
  return false;
}

}  // namespace sweep
