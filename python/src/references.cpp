// SPDX-License-Identifier: Apache-2.0
#include "references.hpp"

#include <runnel/error.hpp>

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <vector>

namespace binding {
namespace detail {

std::atomic<Holder*> dropped{nullptr};
std::atomic<bool> is_dropping{false};

namespace {
std::atomic<bool> is_pending{false};
std::atomic<bool> is_parking{false};
std::atomic<bool> is_closed{false};
std::atomic<int> within{
    0};  // threads that have the interpreter's lock from Interpreter, or wait for it
std::atomic<int> returning{0};              // threads that lock again after a call
PyInterpreterState* interpreter = nullptr;  // the main one
std::atomic<int> forks{0};
std::atomic<int> enqueued[2] = {};  // of the rounds with even and with odd numbers
std::atomic<int> round{0};
std::mutex making;  // held while a thread state is made
// The thread that ends the process, and those that run a function of Python's, are not parked.
thread_local bool is_exempt = false;

// The child has one thread, which is in none of these places.
[[maybe_unused]] const int at_fork = ::pthread_atfork(nullptr, nullptr, [] {
  ++forks;
  within = 0;
  returning = 0;
  enqueued[0] = enqueued[1] = 0;
  is_pending = false;
});
}  // namespace

void destroy_dropped() noexcept {
  // One at a time: a destructor may run any Python code, and so let another thread in, which finds
  // the others here.
  static Holder* ready = nullptr;
  static nb::ft_mutex mutex;
  const auto take = [] {
    const nb::ft_lock_guard lock{mutex};
    if (ready == nullptr) ready = dropped.exchange(nullptr, std::memory_order_acquire);
    Holder* const taken = ready;
    if (taken != nullptr) ready = taken->next;
    is_dropping = ready != nullptr;
    return taken;
  };
  // Such code must not see the caller's exception.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  while (Holder* const each = take()) delete each;
  PyErr_Restore(type, value, trace);
}

}  // namespace detail

void drop_later(Holder* holder) noexcept {
  Holder* head = detail::dropped.load(std::memory_order_relaxed);
  do holder->next = head;
  while (!detail::dropped.compare_exchange_weak(head, holder, std::memory_order_release,
                                                std::memory_order_relaxed));
  detail::within.fetch_add(1);
  if (!detail::is_closed.load() && !detail::is_pending.exchange(true)) {
    const int refused = Py_AddPendingCall(
        [](void*) {
          detail::is_pending = false;
          detail::destroy_dropped();
          return 0;
        },
        nullptr);
    if (refused != 0) detail::is_pending = false;  // its list is full: the next call drops
  }
  detail::within.fetch_sub(1);
}

SharedObject share(nb::handle object) {
  return {new ObjectHolder{nb::borrow(object)}, [](ObjectHolder* holder) { drop_later(holder); }};
}

Interpreter::Interpreter() noexcept {
  detail::within.fetch_add(1);
  if (detail::is_closed.load()) return;
  if (PyGILState_GetThisThreadState() == nullptr) {
    const std::lock_guard lock{detail::making};
    is_made_ = PyThreadState_New(detail::interpreter) != nullptr;
  }
  state_ = PyGILState_Ensure();
  is_held_ = true;
  was_exempt_ = std::exchange(detail::is_exempt, true);
}

Interpreter::~Interpreter() {
  if (is_held_) {
    detail::is_exempt = was_exempt_;
    // A state that was made counts one use itself. It ends with the last one, under the lock.
    if (is_made_) PyGILState_Release(PyGILState_LOCKED);
    PyGILState_Release(state_);
  }
  detail::within.fetch_sub(1);
}

void Unlocked::lock_again(PyThreadState* state) noexcept {
  detail::returning.fetch_add(1);
  if (detail::is_parking.load() && !detail::is_exempt) [[unlikely]] {
    detail::returning.fetch_sub(1);
    for (;;) ::pause();
  }
  PyEval_RestoreThread(state);
  detail::returning.fetch_sub(1, std::memory_order_release);
}

void before_fork() {
  unlocked([] {
    detail::making.lock();
    hold_under_way(true, false);
  });
}
int forks() noexcept { return detail::forks.load(std::memory_order_relaxed); }
void after_fork(bool is_child) {
  hold_under_way(false, is_child);
  detail::making.unlock();
}

void set_interpreter() { detail::interpreter = PyInterpreterState_Get(); }

void park_threads() {
  detail::is_exempt = true;
  detail::is_parking = true;
  PyThreadState* const state = PyEval_SaveThread();
  while (detail::returning.load() != 0) std::this_thread::yield();
  PyEval_RestoreThread(state);
}

void refuse_child(int born) {
  if (born != forks())
    runnel::detail::throw_error(runnel::errc::forked, "wait for a copy",
                                "the parent's threads, which complete it, are not in this process");
}

Enqueued::Enqueued() noexcept : round_{detail::round.load() % 2} { ++detail::enqueued[round_]; }
Enqueued::~Enqueued() {
  if (round_ >= 0) --detail::enqueued[round_];
}

namespace {
template <class F>
[[nodiscard]] bool wait_until(std::chrono::steady_clock::duration time, F is_over) {
  const auto end = std::chrono::steady_clock::now() + time;
  return unlocked([&] {
    while (!is_over()) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  });
}
}  // namespace

bool begin_round() noexcept {
  ++detail::round;
  return detail::enqueued[0].load() + detail::enqueued[1].load() != 0;
}
bool wait_for_round(std::chrono::steady_clock::duration time) {
  return wait_until(time, [] { return detail::enqueued[(detail::round + 1) % 2].load() == 0; });
}
void close_interpreter() noexcept { detail::is_closed = true; }
bool wait_until_left(std::chrono::steady_clock::duration time) {
  return wait_until(time, [] { return detail::within.load() == 0; });
}

PythonFailure PythonFailure::fetch() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  std::shared_ptr<Raised> raised{new Raised, [](Raised* holder) { drop_later(holder); }};
  raised->exception = nb::steal(value);
  raised->trace = trace != nullptr ? nb::steal(trace) : nb::none();
  raised->text = "a Python function raised an exception";
  if (PyObject* const described = PyObject_Repr(raised->exception.ptr())) {
    if (const char* const bytes = PyUnicode_AsUTF8AndSize(described, nullptr)) raised->text = bytes;
    Py_DECREF(described);
  }
  PyErr_Clear();
  return PythonFailure{std::move(raised)};
}

std::mutex PythonFailure::mutex;
std::set<PythonFailure::Raised*>& PythonFailure::living() {
  static auto* const made = new std::set<Raised*>;  // threads may outlive static objects
  return *made;
}

PythonFailure::Raised::Raised() {
  const std::lock_guard lock{mutex};
  living().insert(this);
}

PythonFailure::Raised::~Raised() {
  {
    const std::lock_guard lock{mutex};
    living().erase(this);
  }
  show();
}

void PythonFailure::show_all() noexcept {
  std::vector<Raised*> all;
  {
    const std::lock_guard lock{mutex};
    all.assign(living().begin(), living().end());
  }
  for (Raised* const each : all) each->show();
}

void PythonFailure::Raised::show() noexcept {
  if (!exception.is_valid() || is_collected.exchange(true) || born != forks()) return;
  PyException_SetTraceback(exception.ptr(), trace.ptr());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  const nb::str where{
      "a function that a runnel.Stream called; no synchronize() and no await of that stream has "
      "raised it"};
  PyErr_WriteUnraisable(where.ptr());
}

nb::object PythonFailure::exception() const {
  raised_->is_collected = true;
  PyException_SetTraceback(raised_->exception.ptr(), raised_->trace.ptr());
  return raised_->exception;
}

void PythonFailure::restore() const {
  const nb::object raised = exception();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
}

void call_python(const SharedObject& function, const std::function<nb::object(nb::handle)>& call) {
  const Interpreter interpreter;
  if (!interpreter) return;
  drop_now();
  try {
    static_cast<void>(call(function->object));
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonFailure::fetch();
  }
  drop_now();
}

}  // namespace binding
