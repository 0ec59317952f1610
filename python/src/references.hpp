// SPDX-License-Identifier: Apache-2.0
// Python objects in the keeping of the library's threads, which never take the interpreter's lock
// to drop one.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace nb = nanobind;

namespace binding {

/// Something that holds Python objects. It is destroyed under the interpreter's lock.
struct Holder {
  Holder() = default;
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  virtual ~Holder() = default;
  Holder* next = nullptr;
};

/// Hands a holder over, from any thread: the next call, or one pending call of the interpreter,
/// destroys it.
void drop_later(Holder* holder) noexcept;
namespace detail {
extern std::atomic<Holder*> dropped;
extern std::atomic<bool> is_dropping;
void destroy_dropped() noexcept;
}  // namespace detail
/// Destroys what was handed over. Requires: the interpreter's lock.
inline void drop_now() noexcept {
  if (detail::dropped.load(std::memory_order_relaxed) != nullptr ||
      detail::is_dropping.load(std::memory_order_relaxed)) [[unlikely]]
    detail::destroy_dropped();
}
/// Hands over the arrays of all copies that are complete. Takes no lock of the interpreter's.
void give_back() noexcept;
/// What is under way must not change while a process forks. The child has nothing under way.
void hold_under_way(bool is_held, bool is_child);

struct DropLater {
  void operator()(Holder* holder) const noexcept { drop_later(holder); }
};
using Kept = std::unique_ptr<Holder, DropLater>;

/// One Python object.
struct ObjectHolder : Holder {
  explicit ObjectHolder(nb::object from) noexcept : object{std::move(from)} {}
  nb::object object;
};
/// A share of a Python object, for any thread.
using SharedObject = std::shared_ptr<ObjectHolder>;
[[nodiscard]] SharedObject share(nb::handle object);

/// The interpreter's lock on a thread of the library, unless the interpreter ends: then nothing may
/// be called.
class Interpreter {
 public:
  Interpreter() noexcept;
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();
  [[nodiscard]] explicit operator bool() const noexcept { return is_held_; }

 private:
  bool is_held_ = false;
  bool was_exempt_ = false;
  bool is_made_ = false;  // the thread's state, which the interpreter wants
  PyGILState_STATE state_{};
};
/// Names the interpreter that this thread runs as the one that Interpreter enters.
void set_interpreter();
/// Keeps the thread states of the library's threads from being made while a process forks: the
/// child would find the interpreter's lock of its list of them held by nobody. Around each fork,
/// both under the interpreter's lock, on one thread.
void before_fork();
void after_fork(bool is_child);
/// How often this process's forebears forked since the module was made.
[[nodiscard]] int forks() noexcept;
/// @throws Error if the process has forked since then
void refuse_child(int born);

/// A function of the program that is enqueued or runs, which the end of the process waits for.
class Enqueued {
 public:
  Enqueued() noexcept;
  Enqueued(Enqueued&& other) noexcept : round_{std::exchange(other.round_, -1)} {}
  ~Enqueued();

 private:
  int round_;
};
/// The end of the process, each step under the interpreter's lock. Begins a round of waiting, and
/// tells whether a function is enqueued or runs. Requires: the round before is over.
[[nodiscard]] bool begin_round() noexcept;
/// Waits at most that long for the functions that were enqueued before the round, and tells whether
/// all have run.
[[nodiscard]] bool wait_for_round(std::chrono::steady_clock::duration time);
/// Other threads than the caller's do not come back from a call of the library any more: a thread
/// that asked for the lock of an interpreter that has ended would end the process.
void park_threads();
/// No thread of the library enters the interpreter any more.
void close_interpreter() noexcept;
/// Waits at most that long for those within, and tells whether all have left.
[[nodiscard]] bool wait_until_left(std::chrono::steady_clock::duration time);

/// Gives the interpreter's lock up for a scope.
class Unlocked {
 public:
  Unlocked() noexcept : state_{PyEval_SaveThread()} {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { lock_again(state_); }

 private:
  static void lock_again(PyThreadState* state) noexcept;
  PyThreadState* state_;
};
/// Runs a function without the interpreter's lock.
template <class F>
decltype(auto) unlocked(F&& function) {
  const Unlocked released;
  return std::forward<F>(function)();
}

/// A Python exception on its way through the library. If nobody collects it, it is shown as one
/// that is ignored, with its traceback.
class PythonFailure : public std::exception {
 public:
  /// Takes the exception that is set. Requires: the interpreter's lock, and an exception.
  [[nodiscard]] static PythonFailure fetch();
  [[nodiscard]] const char* what() const noexcept override { return raised_->text.c_str(); }
  /// Shows what nobody has collected so far. Requires: the interpreter's lock.
  static void show_all() noexcept;
  /// Sets it again. Requires: the interpreter's lock.
  void restore() const;
  /// The exception, with the traceback that it was raised with: each `raise` of it adds to that.
  /// Requires: the interpreter's lock.
  [[nodiscard]] nb::object exception() const;

 private:
  struct Raised : Holder {
    Raised();
    ~Raised() override;
    /// Shows it, unless it has been collected.
    void show() noexcept;
    nb::object exception, trace;
    std::string text;
    std::atomic<bool> is_collected = false;
    const int born = forks();  // a parent's is the parent's
  };
  static std::mutex mutex;  // guards the next one
  static std::set<Raised*>& living();
  explicit PythonFailure(std::shared_ptr<Raised> raised) noexcept : raised_{std::move(raised)} {}
  std::shared_ptr<Raised> raised_;
};

/// Calls a Python function on a thread of the library. What the call returns or throws is dropped
/// under the lock.
/// @throws PythonFailure
void call_python(const SharedObject& function, const std::function<nb::object(nb::handle)>& call);

}  // namespace binding
