// SPDX-License-Identifier: Apache-2.0
#include "completions.hpp"

#include "errors.hpp"
#include "waits.hpp"

#include <runnel/completion.hpp>

#include <nanobind/stl/vector.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
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

template <class T>
void on_done(T& source, nb::callable function) {
  drop_now();
  const SharedObject shared = share(function);
  unlocked([&] {
    when_complete(source, [shared](const std::exception_ptr& error) {
      try {
        call_python(shared, [&](nb::handle f) { return f(python_exception(error)); });
      } catch (const PythonFailure& failure) {
        if constexpr (std::is_same_v<T, PyStream>) throw;
        // An event and a copy have nobody to tell it to.
        const Interpreter interpreter;
        if (!interpreter) return;
        failure.restore();
        PyErr_WriteUnraisable(shared->object.ptr());
      }
    });
  });
}

template <class T>
void bind_to(nb::class_<T>& type) {
  type.def(
      "on_done", &on_done<T>, nb::arg("function"),
      nb::sig(
          "def on_done(self, function: typing.Callable[[BaseException | None], object]) -> None"),
      "Calls ``function(error)`` once, on a thread of the library, when everything so far is "
      "complete\n"
      "or has failed: ``error`` is what ``synchronize()`` would raise, or None. The function may "
      "use\n"
      "streams, and must not wait for another such function.");
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
  module.def(
      "_finish",
      [](double seconds) {
        const bool is_quiet =
            unlocked([seconds] { return runnel::quiesce_for(duration_of(seconds)); });
        drop_now();
        return is_quiet;
      },
      nb::arg("seconds"),
      "Waits until no host function is enqueued or runs. False: the time ran out first.");
  module.def("_drop", &drop_now, "Drops what copies no longer need.");
  module.def("_before_fork", &before_fork, "No thread state is made from now on.");
  module.def("_after_fork", &after_fork, "In the parent and in the child.");
  module.def("_show_exceptions", &PythonFailure::show_all,
             "Shows the exceptions of host functions that nobody has collected.");
  module.def("_park", &park_threads, "From now on other threads do not come back from a call.");
  module.def(
      "_close", [](double seconds) { return close_interpreter(duration_of(seconds)); },
      nb::arg("seconds"),
      "From now on no thread of the library begins to call Python. Waits for those that do.\n"
      "False: the time ran out first.");
}

}  // namespace binding
