// SPDX-License-Identifier: Apache-2.0
#include "completions.hpp"

#include "arguments.hpp"
#include "waits.hpp"

#include <runnel/completion.hpp>

#include <nanobind/stl/vector.h>

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace binding {
namespace {

/// What has completed, for one event loop. The library's threads add to it without the
/// interpreter's lock, and wake the loop by its file.
class Queue {
 public:
  Queue() : file_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (file_ < 0)
      throw std::system_error{errno, std::generic_category(), "make a queue of completions"};
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { ::close(file_); }

  struct Done {
    std::uint64_t number;
    std::exception_ptr error;
  };
  [[nodiscard]] int file() const noexcept { return file_; }
  void add(Done done) {
    const std::lock_guard lock{mutex_};
    done_.push_back(std::move(done));
    const std::uint64_t one = 1;
    if (done_.size() == 1) static_cast<void>(!::write(file_, &one, sizeof one));
  }
  [[nodiscard]] std::vector<Done> take() {
    const std::lock_guard lock{mutex_};
    std::uint64_t count;
    static_cast<void>(!::read(file_, &count, sizeof count));
    return std::exchange(done_, {});
  }

 private:
  int file_;
  std::mutex mutex_;
  std::vector<Done> done_;
};

struct PyQueue {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};

[[nodiscard]] nb::list take(PyQueue& self) {
  give_back();
  drop_now();
  nb::list made;
  for (const Queue::Done& done : self.queue->take())
    made.append(nb::make_tuple(done.number, python_exception(done.error)));
  return made;
}

/// Calls `function(error)` when the stream's, the event's or the copy's work is complete.
template <class F>
void when_complete(PyStream& stream, F function) {
  stream.ref.on_complete([f = std::move(function)](const runnel::Outcome& o) { f(o.error()); });
}
template <class F>
void when_complete(PyEvent& event, F function) {
  event.base().on_complete([f = std::move(function)](const runnel::Outcome& o) { f(o.error()); });
}

template <class T>
void submit(PyQueue& self, T& source, std::uint64_t number) {
  unlocked([&] {
    when_complete(source, [queue = self.queue, number](const std::exception_ptr& error) {
      queue->add({number, error});
    });
  });
}

/// The thread that calls the functions of on_done(). What delivers completions calls no Python: so
/// such a function may wait for all work but other such functions.
class Caller {
 public:
  using Call = std::function<void()>;
  /// Starts the thread, unless it runs.
  void start() {
    if (born_ >= 0) return refuse_child(born_);
    const std::lock_guard lock{mutex_};
    if (born_ < 0) start_thread();
  }
  void add(Call call) {
    const std::lock_guard lock{mutex_};
    calls_.push_back(std::move(call));
    added_.notify_one();
  }

 private:
  void start_thread() {
    // Signals are for the program's threads.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread{[this] { work(); }}.detach();
      born_ = forks();
    } catch (const std::system_error&) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (born_ < 0)
      runnel::detail::throw_error(runnel::errc::out_of_memory, "call a function of on_done()",
                                  "the system has no thread");
  }
  [[noreturn]] void work() {
    for (;;) {
      std::unique_lock lock{mutex_};
      added_.wait(lock, [this] { return !calls_.empty(); });
      const Call call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Call> calls_;
  std::atomic<int> born_ = -1;  // forks() when the thread was started
};
[[nodiscard]] Caller& caller() {
  static auto* const made = new Caller;  // its thread may outlive static objects
  return *made;
}

template <class T>
void on_done(T& source, nb::handle function) {
  drop_now();
  const auto call = [shared = share(function_in(function)),
                     counted = std::make_shared<Enqueued>()](const std::exception_ptr& error) {
    give_back();
    try {
      call_python(shared, [&](nb::handle f) { return f(python_exception(error)); });
    } catch (const PythonFailure& failure) {
      const Interpreter interpreter;
      if (!interpreter) return;
      failure.restore();
      PyErr_WriteUnraisable(shared->object.ptr());
    }
  };
  unlocked([&] {
    caller().start();
    when_complete(source, [call](const std::exception_ptr& error) {
      caller().add([call, error] { call(error); });
    });
  });
}

template <class T>
void bind_to(nb::class_<T>& type) {
  type.def(
      "on_done", &on_done<T>, nb::arg("function").none(),
      nb::sig(
          "def on_done(self, function: typing.Callable[[BaseException | None], object]) -> None"),
      "Calls ``function(error)`` once, on a thread of the library, when everything so far is "
      "complete\n"
      "or has failed: ``error`` is what ``synchronize()`` would raise, or None. The function may "
      "use\n"
      "streams, and wait for work, but not for another such function. What it raises is shown by "
      "``sys.unraisablehook``.");
  type.def(
      "__await__",
      [](nb::handle self) {
        return nb::module_::import_("runnel._asyncio").attr("completion")(self).attr("__await__")();
      },
      nb::sig("def __await__(self) -> typing.Generator[object, None, None]"),
      "``await`` returns when everything so far is complete, and raises what ``synchronize()`` "
      "would\n"
      "raise. The loop goes on meanwhile.");
}

}  // namespace

void bind_completions_of(nb::class_<PyStream>& stream) { bind_to(stream); }
void bind_completions_of(nb::class_<PyEvent>& event) { bind_to(event); }
void bind_completions_of(nb::class_<PyCopy>& copy) { bind_to(copy); }

void bind_completions(nb::module_& module) {
  nb::class_<PyQueue>(module, "_Completions", nb::is_weak_referenceable(),
                      "What has completed, for one event loop.")
      .def(nb::init<>())
      .def_prop_ro(
          "file", [](const PyQueue& self) { return self.queue->file(); },
          "Readable once something has completed.")
      .def("submit", &submit<PyStream>, nb::arg("source"), nb::arg("number"))
      .def("submit", &submit<PyEvent>, nb::arg("source"), nb::arg("number"))
      .def("submit", &submit<PyCopy>, nb::arg("source"), nb::arg("number"))
      .def("take", &take, nb::sig("def take(self) -> list[tuple[int, BaseException | None]]"),
           "The numbers that were submitted, with errors.");
  module.def("_drop", &drop_now, "Drops what copies no longer need.");
  module.def("_before_fork", &before_fork, "No thread state is made from now on.");
  module.def("_after_fork", &after_fork, nb::arg("is_child"), "In the parent and in the child.");
  module.def("_show_exceptions", &PythonFailure::show_all,
             "Shows the exceptions of host functions that nobody has collected.");
  module.def("_begin_round", &begin_round,
             "Whether a function of the program is enqueued or runs.");
  const auto wait = [&](const char* name, bool (*wait_for)(std::chrono::steady_clock::duration),
                        const char* text) {
    module.def(
        name, [wait_for](double seconds) { return wait_for(duration_of(seconds)); },
        nb::arg("seconds"), text);
  };
  wait("_wait_for_round", &wait_for_round,
       "Waits for functions that were enqueued before the round. False: the time ran out first.");
  module.def("_park", &park_threads, "From now on other threads do not come back from a call.");
  module.def("_close", &close_interpreter,
             "From now on no thread of the library begins to call Python.");
  wait("_wait_until_left", &wait_until_left, "Waits for those that do.");
}

}  // namespace binding
