// SPDX-License-Identifier: Apache-2.0
#include "events.hpp"

#include "arguments.hpp"
#include "completions.hpp"
#include "current.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "waits.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>

namespace binding {
namespace {

[[nodiscard]] double elapsed_time(const PyEvent& start, nb::handle other) {
  const PyEvent& end = as_event(other);
  if (!start.is_timed() || !end.is_timed())
    refuse_value(
        "elapsed_time() is for events that take the time: write runnel.Event(timing=True)");
  const auto time = unlocked([&] { return end.timed() - start.timed(); });
  return std::chrono::duration<double, std::milli>{time}.count();
}

[[nodiscard]] std::string describe(const PyEvent& event) {
  return std::string{"<runnel.Event"} + (event.is_timed() ? " that takes the time" : "") +
         (event.is_recorded ? ", recorded>" : ", never recorded>");
}

void bind_marks(nb::class_<PyEvent>& event) {
  event
      .def(
          "record",
          [](PyEvent& self, nb::object stream) {
            const runnel::StreamRef in = stream_of(stream);
            unlocked([&] { self.record(in); });
          },
          nb::arg("stream") = nb::none(),
          nb::sig("def record(self, stream: Stream | None = None) -> None"),
          "Records everything that ``stream`` (default: the current stream) was given so far.")
      .def(
          "wait",
          [](PyEvent& self, nb::object stream) {
            const runnel::StreamRef in = stream_of(stream);
            unlocked([&] { self.make_wait(in); });
          },
          nb::arg("stream") = nb::none(),
          nb::sig("def wait(self, stream: Stream | None = None) -> None"),
          "What ``stream`` (default: the current stream) is given from now on runs after the "
          "recorded work,\n"
          "as torch's ``Event.wait()``.");
}

[[nodiscard]] bool is_done(PyEvent& event) {
  return ask([&] { return event.base().query(); });
}

void bind_questions(nb::class_<PyEvent>& event) {
  event
      .def("query", &is_done,
           "True when the recorded work is complete. Never waits. Raises what failed.")
      .def_prop_ro("done", &is_done, "The same as ``query()``, as CuPy has it.")
      .def(
          "synchronize",
          [](PyEvent& self, Seconds timeout) {
            wait_in_slices(timeout.of("timeout"), "the event's work is not complete",
                           [&](auto time) { return self.base().synchronize_for(time); });
          },
          nb::arg("timeout") = nb::none(),
          "Waits until the recorded work is complete, at most ``timeout`` seconds. Raises "
          "TimeoutError, and\n"
          "what failed.")
      .def("elapsed_time", &elapsed_time, nb::arg("end").none(),
           nb::sig("def elapsed_time(self, end: Event) -> float"),
           "Milliseconds from this event to ``end``, as torch's. Never waits. Raises NotReady if "
           "one of the\n"
           "two is not complete, ValueError for events without ``timing=True``, InvalidArgument if "
           "one was\n"
           "never recorded.")
      .def_prop_ro("timing", &PyEvent::is_timed, "Whether it takes the time.")
      .def("__repr__", &describe);
}

}  // namespace

PyEvent::PyEvent(bool is_timed) {
  if (is_timed) event_.emplace<runnel::TimedEvent>();
}

void PyEvent::record(runnel::StreamRef stream) {
  base().record(stream);
  is_recorded = true;
}

void PyEvent::make_wait(runnel::StreamRef stream) const {
  std::visit([&](const auto& event) { stream.wait_event(event); }, event_);
}

PyEvent& as_event(nb::handle object) {
  if (!nb::isinstance<PyEvent>(object) || !nb::inst_ready(object)) {
    refuse(PyExc_TypeError, "%R is no runnel.Event", object.ptr());
  }
  return *nb::inst_ptr<PyEvent>(object);
}

nb::object wrap_event(nb::handle object, nb::handle device) {
  const Foreign foreign = read_foreign(object, false);
  const runnel::Device on = device_of(device.is_none() ? nb::handle(foreign.device) : device);
  auto made = std::make_unique<PyEvent>(unlocked([&] {
    return runnel::Event::from_native(reinterpret_cast<runnel::native::event>(foreign.handle), on,
                                      runnel::Ownership::borrow);
  }));
  made->wrapped = share(object);
  return nb::cast(made.release(), nb::rv_policy::take_ownership);
}

namespace {
PyType_Slot event_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_wrapped<PyEvent, 1>)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_wrapped<PyEvent>)},
    {0, nullptr}};
}  // namespace

void bind_events(nb::module_& module) {
  auto event = nb::class_<PyEvent>(
      module, "Event", nb::is_weak_referenceable(), nb::type_slots(event_slots),
      "A mark in a stream. Recording it again replaces the mark; one that was never recorded is\n"
      "complete. With ``timing=True`` it takes the time, too.");
  event.def(
      "__init__",
      [](PyEvent* at, Argument<bool> timing, Argument<bool> enable_timing) {
        const bool is_timed = timing.of("timing");
        new (at) PyEvent{enable_timing.of("enable_timing") || is_timed};
      },
      nb::arg("timing").none() = false, nb::kw_only(), nb::arg("enable_timing").none() = false,
      "``enable_timing`` is torch's word for ``timing``.");
  event
      .def_static(
          "wrap", &wrap_event, nb::arg("event").none(), nb::arg("device") = nb::none(),
          nb::sig("def wrap(event: object, device: Device | int | str | None = None) -> Event"),
          "An event of another library, which has been recorded: an object with ``.cuda_event`` "
          "(torch) or\n"
          "``.ptr`` (CuPy). It keeps the object alive.")
      .def(
          "close", [](PyEvent& self) { unlocked([&] { self.close(); }); }, nb::lock_self(),
          "Ends it before its object ends: it must not be used any more.");
  bind_marks(event);
  bind_questions(event);
  bind_completions_of(event);
}

}  // namespace binding
