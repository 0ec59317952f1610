// SPDX-License-Identifier: Apache-2.0
#include "references.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <vector>

namespace binding {
namespace detail {

std::atomic<Holder*> dropped{nullptr};

namespace {
std::atomic<bool> is_pending{false};
std::atomic<bool> is_parking{false};
std::atomic<bool> is_closed{false};
std::atomic<int> within{
    0};  // threads that have the interpreter's lock from Interpreter, or wait for it
std::atomic<int> returning{0};              // threads that lock again after a call
PyInterpreterState* interpreter = nullptr;  // the main one
std::atomic<int> forks{0};
std::mutex making;  // held while a thread state is made
// The thread that ends the process, and those that run a function of Python's, are not parked.
thread_local bool is_exempt = false;

// The child has one thread, which is in none of these places.
[[maybe_unused]] const int at_fork = ::pthread_atfork(nullptr, nullptr, [] {
  ++forks;
  within = 0;
  returning = 0;
  is_pending = false;
});
}  // namespace

void destroy_dropped() noexcept {
  Holder* each = dropped.exchange(nullptr, std::memory_order_acquire);
  if (each == nullptr) return;
  // A destructor may run any Python code, which must not see the caller's exception.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  while (each != nullptr) delete std::exchange(each, each->next);
  PyErr_Restore(type, value, trace);
}

}  // namespace detail

void drop_later(Holder* holder) noexcept {
  Holder* head = detail::dropped.load(std::memory_order_relaxed);
  do holder->next = head;
  while (!detail::dropped.compare_exchange_weak(head, holder, std::memory_order_release,
                                                std::memory_order_relaxed));
  if (detail::is_closed.load() || detail::is_pending.exchange(true)) return;
  const int refused = Py_AddPendingCall(
      [](void*) {
        detail::is_pending = false;
        detail::destroy_dropped();
        return 0;
      },
      nullptr);
  if (refused != 0) detail::is_pending = false;  // its list is full: the next call drops
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
  unlocked([] { detail::making.lock(); });
}
int forks() noexcept { return detail::forks.load(std::memory_order_relaxed); }
void after_fork() { detail::making.unlock(); }

void set_interpreter() { detail::interpreter = PyInterpreterState_Get(); }

void park_threads() {
  detail::is_exempt = true;
  detail::is_parking = true;
  PyThreadState* const state = PyEval_SaveThread();
  while (detail::returning.load() != 0) std::this_thread::yield();
  PyEval_RestoreThread(state);
}

bool close_interpreter(std::chrono::steady_clock::duration time) {
  detail::is_closed = true;
  const auto end = std::chrono::steady_clock::now() + time;
  return unlocked([end] {
    while (detail::within.load() != 0) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  });
}

PythonFailure PythonFailure::fetch(Uncollected uncollected) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  std::shared_ptr<Raised> raised{new Raised, [](Raised* holder) { drop_later(holder); }};
  raised->exception = nb::steal(value);
  raised->trace = trace != nullptr ? nb::steal(trace) : nb::none();
  raised->is_collected = uncollected == Uncollected::dropped;
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

void call_python(const SharedObject& function, const std::function<nb::object(nb::handle)>& call,
                 Uncollected uncollected) {
  const Interpreter interpreter;
  if (!interpreter) return;
  try {
    static_cast<void>(call(function->object));
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonFailure::fetch(uncollected);
  }
  drop_now();
}

}  // namespace binding
