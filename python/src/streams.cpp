// SPDX-License-Identifier: Apache-2.0
#include "streams.hpp"

#include "arguments.hpp"
#include "blocks.hpp"
#include "completions.hpp"
#include "current.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "events.hpp"
#include "waits.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

namespace binding {
namespace {

using Made = std::unique_ptr<PyStream>;

void make_stream(PyStream* at, nb::handle device, Argument<int> priority, Argument<bool> blocking,
                 nb::handle name) {
  const runnel::Device on = device_of(device);
  if (!name.is_none() && PyUnicode_Check(name.ptr()) == 0)
    refuse_argument("name", name, "a text, or None");
  std::string text = name.is_none() ? "" : nb::cast<std::string>(name);
  constexpr std::size_t most = 31;
  if (text.size() > most) {  // the library would cut it within a character
    std::size_t end = most;
    while ((text[end] & 0xC0) == 0x80) --end;
    text.resize(end);
  }
  const runnel::StreamOptions options{.priority = priority.of("priority"),
                                      .blocking = blocking.of("blocking"),
                                      .name = text.empty() ? nullptr : text.c_str()};
  runnel::Stream made = unlocked([&] { return runnel::Stream{on, options}; });
  new (at) PyStream{std::move(made)};
}

[[nodiscard]] std::uintptr_t to_handle(nb::handle number) {
  if (const nb::object whole = nb::steal(PyNumber_Index(number.ptr())); whole.is_valid()) {
    const std::size_t handle = PyLong_AsSize_t(whole.ptr());
    if (PyErr_Occurred() == nullptr) return handle;
  }
  PyErr_Clear();
  refuse(PyExc_ValueError,
         "stream: %R is no handle, which is a number of 64 bits that is not negative",
         number.ptr());
}

/// Whether its class is called so: CuPy's streams have the same attributes as its events.
[[nodiscard]] bool is_event(nb::handle object) {
  const nb::object name = nb::borrow(object).type().attr("__name__");
  return nb::cast<std::string>(name) == "Event";
}

}  // namespace

Foreign read_foreign(nb::handle object, bool is_stream) {
  const nb::object protocol =
      is_stream ? nb::getattr(object, "__cuda_stream__", nb::none()) : nb::none();
  const nb::object device =
      nb::getattr(object, "device", nb::getattr(object, "device_id", nb::none()));
  if (!protocol.is_none()) {
    const nb::object found = PyCallable_Check(protocol.ptr()) != 0 ? protocol() : protocol;
    return {to_handle(nb::object(found[1])), device};
  }
  for (const char* const name : {is_stream ? "cuda_stream" : "cuda_event", "ptr"})
    if (nb::hasattr(object, name) && as_block(object) == nullptr &&
        (is_stream || *name == 'c' || is_event(object)))
      return {to_handle(object.attr(name)), device};
  if (is_stream && PyLong_Check(object.ptr())) return {to_handle(object), nb::none()};
  refuse(PyExc_TypeError,
         is_stream ? "%R is no stream: it wants an object with __cuda_stream__, .cuda_stream "
                     "(torch) or .ptr (CuPy), or a handle"
                   : "%R is no runnel.Event, and no event with .cuda_event (torch) or .ptr (CuPy)",
         object.ptr());
}

namespace {

[[nodiscard]] Made wrap(nb::object object, nb::object device) {
  if (nb::isinstance<PyStream>(object)) refuse_value("it is a runnel.Stream already");
  const Foreign foreign = read_foreign(object, true);
  const bool is_known = !device.is_none() || !foreign.device.is_none();
  const runnel::Device on = device_of(!device.is_none() ? device : foreign.device);
  const SharedObject owner = share(object);
  Made made = unlocked([&] {
    const auto handle = reinterpret_cast<runnel::native::stream>(foreign.handle);
    const runnel::Device place =
        is_known || foreign.handle <= 2 ? on : runnel::StreamRef::from_native(handle).device();
    return std::make_unique<PyStream>(runnel::ForeignStream{handle, place, owner});
  });
  made->wrapped = owner;
  return made;
}

[[nodiscard]] std::uintptr_t handle_of(const PyStream& stream) {
  return reinterpret_cast<std::uintptr_t>(stream.ref.native());
}

[[nodiscard]] std::string describe(const PyStream& stream) {
  if (!stream.ref.is_valid()) return "<runnel.Stream that has ended>";
  std::string text = "<runnel.Stream " + std::to_string(stream.ref.id());
  if (*stream.ref.name() != '\0') text += " '" + std::string{stream.ref.name()} + "'";
  text += ", device " + std::to_string(stream.ref.device().ordinal());
  if (std::holds_alternative<runnel::ForeignStream>(stream.owner)) text += ", of another library";
  if (std::holds_alternative<runnel::StreamLease>(stream.owner)) text += ", of a pool";
  if (std::holds_alternative<std::monostate>(stream.owner)) text += ", the default stream";
  return text + ">";
}

void launch_host_func(PyStream& stream, nb::handle function, nb::args arguments,
                      Argument<bool> writes_host_memory) {
  struct Call {
    SharedObject function;
    SharedObject arguments;
    Enqueued counted;
    void operator()() const {
      call_python(function, [this](nb::handle f) {
        return made_by(PyObject_Call(f.ptr(), arguments->object.ptr(), nullptr));
      });
    }
  };
  drop_now();
  Call call{share(function_in(function)), share(arguments), {}};
  const bool writes = writes_host_memory.of("writes_host_memory");
  unlocked([&] { stream.ref.launch_host_func(std::move(call), {.writes_host_memory = writes}); });
}

[[nodiscard]] bool is_done(const PyStream& stream) {
  return ask([&] { return stream.ref.query(); });
}

void bind_properties(nb::class_<PyStream>& stream) {
  stream
      .def_prop_ro(
          "handle", &handle_of,
          "The vendor's handle, as an int: a ``cudaStream_t`` on CUDA. 0 is a default stream.")
      .def_prop_ro("cuda_stream", &handle_of,
                   "The same as ``handle``, under the name that torch's streams have.")
      .def_prop_ro("ptr", &handle_of,
                   "The same as ``handle``, under the name that CuPy's streams have.")
      .def_prop_ro(
          "id", [](const PyStream& s) { return s.ref.id(); },
          "A number that no other stream of this process ever has.")
      .def_prop_ro(
          "device", [](const PyStream& s) { return s.ref.device(); },
          "The device that runs its work.")
      .def_prop_ro(
          "priority",
          [](const PyStream& s) { return unlocked([&] { return s.ref.priority().value; }); },
          "The priority, clamped to the device's range: a lower number is more urgent.")
      .def_prop_ro(
          "blocking", [](const PyStream& s) { return s.ref.is_blocking(); },
          "Whether it orders with the device's default stream.")
      .def_prop_ro(
          "name", [](const PyStream& s) { return std::string{s.ref.name()}; },
          "Its name for profilers; ``''``: none.")
      .def_prop_ro(
          "is_capturing",
          [](const PyStream& s) { return unlocked([&] { return s.ref.is_capturing(); }); },
          "Whether it is being captured, as within ``torch.cuda.graph``.")
      .def(
          "close",
          [](PyStream& s) {
            auto ending = std::exchange(s.owner, std::monostate{});
            s.wrapped.reset();
            unlocked([&] { ending = std::monostate{}; });
            drop_now();
          },
          nb::lock_self(),
          "Ends it before its object ends: its work completes, and it must not be used any more. A "
          "default\n"
          "stream stays.")
      .def_prop_ro("done", &is_done, "The same as ``query()``, as CuPy has it.")
      .def_prop_ro_static(
          "null", [](nb::handle) { return default_stream(runnel::Device{0}); },
          nb::sig("def null(self: object, /) -> Stream"),
          "The default stream of device 0, as CuPy has it.");
}

void bind_protocols(nb::class_<PyStream>& stream) {
  stream
      .def(
          "__cuda_stream__", [](const PyStream& s) { return nb::make_tuple(0, handle_of(s)); },
          nb::sig("def __cuda_stream__(self) -> tuple[int, int]"),
          "For cuda.core and others: the protocol's version and the handle.")
      .def(
          "__eq__",
          [](const PyStream& a, nb::handle b) {
            return nb::isinstance<PyStream>(b) && nb::inst_ready(b) && a.ref == as_stream(b).ref;
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__", [](const PyStream& s) { return static_cast<std::ptrdiff_t>(s.ref.id()); })
      .def("__repr__", &describe);
}

void bind_order(nb::class_<PyStream>& stream) {
  stream
      .def(
          "wait_stream",
          [](PyStream& self, nb::handle stream) {
            drop_now();
            const PyStream& other = as_stream(stream);
            unlocked([&] { self.ref.wait_stream(other.ref); });
          },
          nb::arg("stream").none(), nb::sig("def wait_stream(self, stream: Stream) -> None"),
          "What this stream is given from now on runs after everything that ``stream`` was given "
          "so far.\n"
          "Returns at once.")
      .def(
          "wait_event",
          [](PyStream& self, nb::handle event) {
            if (!nb::isinstance<PyEvent>(event)) {
              const Foreign foreign = read_foreign(event, false);
              if (foreign.handle == 0) return;  // torch makes an event when it is recorded
              const nb::object wrapped = wrap_event(event, nb::none());
              return unlocked([&] { nb::inst_ptr<PyEvent>(wrapped)->make_wait(self.ref); });
            }
            const PyEvent& recorded = as_event(event);
            unlocked([&] { recorded.make_wait(self.ref); });
          },
          nb::arg("event").none(), nb::sig("def wait_event(self, event: object) -> None"),
          "What this stream is given from now on runs after the work that ``event`` has recorded: "
          "an Event,\n"
          "or one of torch's or CuPy's. Returns at once.")
      .def(
          "record_event",
          [](PyStream& self, nb::object event) {
            if (event.is_none())
              event = nb::cast(new PyEvent{false}, nb::rv_policy::take_ownership);
            PyEvent& recorded = as_event(event);
            unlocked([&] { recorded.record(self.ref); });
            return event;
          },
          nb::arg("event") = nb::none(),
          nb::sig("def record_event(self, event: Event | None = None) -> Event"),
          "Records everything that this stream was given so far, in ``event`` or in a new one, "
          "which it\n"
          "returns.")
      .def(
          "record",
          [](PyStream& self, nb::handle event) {
            PyEvent& recorded = as_event(event);
            unlocked([&] { recorded.record(self.ref); });
          },
          nb::arg("event").none(), nb::sig("def record(self, event: Event) -> None"),
          "The same as ``record_event(event)``, as CuPy has it.")
      .def("query", &is_done,
           "True when everything that it was given so far is complete. Never waits. Raises what "
           "failed before.")
      .def(
          "synchronize",
          [](PyStream& self, Seconds timeout) { wait_for_stream(self.ref, timeout.of("timeout")); },
          nb::arg("timeout") = nb::none(),
          "Waits until everything that it was given so far is complete, at most ``timeout`` "
          "seconds. Then\n"
          "raises the first exception of a host function, if there was one, once. Raises "
          "TimeoutError when\n"
          "the time has run out, and KeyboardInterrupt at Ctrl-C; the work goes on.")
      .def("launch_host_func", &launch_host_func, nb::arg("function").none(), nb::arg("args"),
           nb::arg("writes_host_memory").none() = true,
           nb::sig("def launch_host_func(self, function: typing.Callable[..., object], *args: "
                   "object, writes_host_memory: bool = True) -> None"),
           "Enqueues ``function(*args)``: it runs once, on a thread of the runtime, after the work "
           "so far\n"
           "and before later work. It must not use streams. ``synchronize()`` and ``await`` raise "
           "the first\n"
           "exception. While it is unfinished, copies from pageable memory read their source in "
           "stream order,\n"
           "which is slower: ``writes_host_memory=False`` says that it writes no memory which a "
           "later copy reads.");
}

/// Calls a function whose exceptions become Python's. False: one is set.
template <class F>
[[nodiscard]] bool guarded(F&& function) noexcept {
  try {
    function();
    return true;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (...) {
    set_python_error(std::current_exception());
  }
  return false;
}

void bind_current_stream(nb::class_<PyStream>& stream) {
  stream.def(
      "use", [](nb::handle self) { use_stream(self); },
      "Makes this the current stream of its device, in this context, until changed or until the\n"
      "``with`` around it ends.");
}

// `with stream:` is entered so often that these two are plain functions of the interpreter's.
PyObject* enter(PyObject* self, PyObject*) noexcept {
  return guarded([self] { enter_stream(self); }) ? Py_NewRef(self) : nullptr;
}
PyObject* leave(PyObject* self, PyObject* const*, Py_ssize_t) noexcept {
  return guarded([self] { leave_stream(self); }) ? Py_NewRef(Py_None) : nullptr;
}
PyMethodDef with_methods[] = {
    {"__enter__", &enter, METH_NOARGS,
     "__enter__($self, /)\n--\n\nMakes this the current stream of its device until the ``with`` "
     "ends."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&leave)), METH_FASTCALL,
     "__exit__($self, type, value, traceback, /)\n--\n\nMakes the stream current again that was "
     "before."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot stream_slots[] = {
    {Py_tp_methods, with_methods},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_wrapped<PyStream, 2>)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_wrapped<PyStream>)},
    {0, nullptr}};

struct PyPool {
  explicit PyPool(std::shared_ptr<runnel::StreamPool> made) noexcept : pool{std::move(made)} {}
  PyPool(const PyPool&) = delete;
  PyPool& operator=(const PyPool&) = delete;
  ~PyPool() {
    unlocked([this] { pool.reset(); });
  }
  std::shared_ptr<runnel::StreamPool> pool;  // null once it is closed, maybe while others wait
  [[nodiscard]] std::shared_ptr<runnel::StreamPool> get() const {
    if (pool == nullptr) refuse_value("the stream pool was closed");
    return pool;
  }
};
[[nodiscard]] Made acquire(PyPool& self, Seconds limit) {
  const std::optional<double> timeout = limit.of("timeout");
  const auto pool = self.get();
  if (!timeout) return unlocked([&] { return std::make_unique<PyStream>(pool->acquire()); });
  Made made;
  wait_in_slices(timeout, "no stream came back to the pool", [&](auto time) {
    if (auto lease = pool->acquire_for(time)) made = std::make_unique<PyStream>(std::move(*lease));
    return made != nullptr;
  });
  return made;
}

void bind_pool(nb::module_& module) {
  nb::class_<PyPool>(module, "StreamPool", nb::is_weak_referenceable(),
                     "Streams of one device, each leased to one holder at a time. A stream goes "
                     "back when its object\n"
                     "ends; the next holder's work runs after what is still in it.")
      .def(
          "__init__",
          [](PyPool* at, nb::object device, Argument<std::size_t> size,
             Argument<std::optional<std::size_t>> max, Argument<int> priority) {
            runnel::StreamPoolOptions options{.size = size.of("size"),
                                              .stream = {.priority = priority.of("priority")}};
            if (const auto most = max.of("max")) options.max = *most;
            const runnel::Device on = device_of(device);
            new (at)
                PyPool{unlocked([&] { return std::make_shared<runnel::StreamPool>(on, options); })};
          },
          nb::arg("device") = nb::none(), nb::kw_only(), nb::arg("size").none() = 8,
          nb::arg("max") = nb::none(), nb::arg("priority").none() = 0,
          nb::sig(
              "def __init__(self, device: Device | int | str | None = None, *, size: int = 8, max: "
              "int | None = None, priority: int = 0) -> "
              "None"),
          "Makes ``size`` streams; it grows to at most ``max`` (None: no limit).")
      .def("acquire", &acquire, nb::arg("timeout") = nb::none(),
           "Leases a stream. At ``max`` raises Error (code ``pool_exhausted``), or waits for one "
           "at most\n"
           "``timeout`` seconds and raises TimeoutError.")
      .def(
          "close",
          [](PyPool& self) {
            auto ending = std::move(self.pool);
            unlocked([&] { ending.reset(); });
          },
          nb::lock_self(),
          "Ends it before its object ends: it must not be used any more. Streams that are leased "
          "stay until\n"
          "they are given back.")
      .def_prop_ro(
          "size", [](const PyPool& p) { return p.get()->size(); }, "Streams, leased or not.")
      .def_prop_ro(
          "leased", [](const PyPool& p) { return p.get()->leased(); },
          "Streams that are leased now.")
      .def_prop_ro(
          "device", [](const PyPool& p) { return p.get()->device(); },
          "The device of all its streams.")
      .def("__repr__", [](const PyPool& p) -> std::string {
        if (p.pool == nullptr) return "<runnel.StreamPool, closed>";
        try {
          return "<runnel.StreamPool of " + std::to_string(p.pool->size()) + " streams, " +
                 std::to_string(p.pool->leased()) + " leased, device " +
                 std::to_string(p.pool->device().ordinal()) + ">";
        } catch (const runnel::Error&) {  // in a forked child
          return "<runnel.StreamPool that cannot be used in this process>";
        }
      });
}

}  // namespace

PyStream& as_stream(nb::handle object) {
  if (!nb::isinstance<PyStream>(object)) {
    refuse(PyExc_TypeError,
           "%R is no runnel.Stream: runnel.Stream.wrap() makes one of another library's stream",
           object.ptr());
  }
  if (!nb::inst_ready(object))
    refuse_value(
        "the stream was never made: a class that is derived from runnel.Stream calls "
        "super().__init__()");
  return *nb::inst_ptr<PyStream>(object);
}

void wait_for_stream(runnel::StreamRef stream, std::optional<double> seconds) {
  wait_in_slices(seconds, "the stream still works",
                 [stream](auto time) { return stream.synchronize_for(time); });
}

void bind_streams(nb::module_& module) {
  auto stream = nb::class_<PyStream>(
      module, "Stream", nb::is_weak_referenceable(), nb::type_slots(stream_slots),
      "A line of work on a device: what it is given runs in that order, at the same time as other\n"
      "streams. ``device`` is a Device, a number or None (device 0). A lower ``priority`` is more\n"
      "urgent; any number is clamped to the device's range. ``blocking``: it orders with the "
      "device's\n"
      "default stream. ``name``: for profilers, at most 31 bytes.\n\n"
      "A stream may be dropped with work in it: the work completes. Raises NoDevice, "
      "InvalidArgument (a\n"
      "device that is not there), Error.");
  stream
      .def("__init__", &make_stream, nb::arg("device") = nb::none(), nb::kw_only(),
           nb::arg("priority").none() = 0, nb::arg("blocking").none() = false,
           nb::arg("name") = nb::none(),
           nb::sig(
               "def __init__(self, device: Device | int | str | None = None, *, priority: int = 0, "
               "blocking: bool = False, name: str | None = "
               "None) -> None"))
      .def_static(
          "wrap", &wrap, nb::arg("stream").none(), nb::arg("device") = nb::none(),
          nb::sig("def wrap(stream: object, device: Device | int | str | None = None) -> Stream"),
          "A stream of another library: an object with ``__cuda_stream__``, "
          "``.cuda_stream`` (torch) or\n"
          "``.ptr`` (CuPy), or a handle as an int. It keeps the object alive. The handles "
          "0, 1 and 2 are\n"
          "default streams. Any other handle is a stream's that lives: the host backend "
          "refuses what is none,\n"
          "and a device's runtime may end the process. Raises InvalidArgument for another "
          "device's handle,\n"
          "ValueError for a number that is no handle, TypeError for what is no stream.");
  bind_properties(stream);
  bind_protocols(stream);
  bind_order(stream);
  bind_current_stream(stream);
  bind_completions_of(stream);
  bind_pool(module);
}

}  // namespace binding
