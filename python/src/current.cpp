// SPDX-License-Identifier: Apache-2.0
#include "current.hpp"

#include "backend.hpp"
#include "devices.hpp"
#include "errors.hpp"

#include <nanobind/stl/optional.h>

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

namespace binding {
namespace {

// The variable holds None or a node (stream, the node before, the stream of the `with` that made it
// or None): a list that is never changed, so that a context that was copied keeps its own. The node
// of a `with` with nothing before it, the usual one, is the stream itself.
[[nodiscard]] nb::handle variable() {
  static const nb::object* const made = [] {
    const nb::object type = nb::module_::import_("contextvars").attr("ContextVar");
    return new nb::object{type("runnel.current_stream", nb::arg("default") = nb::none())};
  }();
  return *made;
}

// CPython exports these functions since 3.7, but they are not in the stable interface, whose way,
// by the variable's methods, takes longer.
int (*get_variable)(PyObject* variable, PyObject* otherwise, PyObject** value);
PyObject* (*set_variable)(PyObject* variable, PyObject* value);
void find_functions() {
  get_variable =
      reinterpret_cast<decltype(get_variable)>(::dlsym(RTLD_DEFAULT, "PyContextVar_Get"));
  set_variable =
      reinterpret_cast<decltype(set_variable)>(::dlsym(RTLD_DEFAULT, "PyContextVar_Set"));
  if (get_variable != nullptr && set_variable != nullptr) return;
  refuse(PyExc_ImportError, "runnel needs CPython: this interpreter has no PyContextVar_Get()");
}
[[nodiscard]] nb::object get() {
  PyObject* value = nullptr;
  check(get_variable(variable().ptr(), nullptr, &value) != 0);
  return nb::steal(value);
}
void set(nb::handle value) {
  static_cast<void>(made_by(set_variable(variable().ptr(), value.ptr())));
}

[[nodiscard]] nb::handle item(nb::handle node, Py_ssize_t at) {
  if (PyTuple_Check(node.ptr()) != 0) return PyTuple_GetItem(node.ptr(), at);
  return at == 1 ? nb::handle{Py_None} : node;
}
[[nodiscard]] nb::object make_node(nb::handle stream, nb::handle before, nb::handle entered) {
  if (before.is_none() && entered.is(stream)) return nb::borrow(stream);
  return made_by(PyTuple_Pack(3, stream.ptr(), before.ptr(), entered.ptr()));
}
[[nodiscard]] PyStream* stream_in(nb::handle node) { return nb::inst_ptr<PyStream>(item(node, 0)); }

[[nodiscard]] nb::object find_node(std::optional<runnel::Device> device) {
  nb::object node = get();
  while (!node.is_none() && !(stream_in(node)->ref.is_valid() &&
                              (!device || stream_in(node)->ref.device() == *device)))
    node = nb::borrow(item(node, 1));
  return node;
}

/// torch's current stream on that device, by its handle: the quick way of its compiled code where
/// it is there.
[[nodiscard]] runnel::StreamRef torch_stream(int device) {
  static const nb::object* const torch = new nb::object{nb::module_::import_("torch")};
  static const nb::object* const raw = [] {
    const nb::object fast = nb::getattr(torch->attr("_C"), "_cuda_getCurrentRawStream", nb::none());
    return new nb::object{fast};
  }();
  static const nb::object* const ids = [] {
    const nb::object found = nb::getattr(torch->attr("_C"), "_cuda_getCurrentStream", nb::none());
    return new nb::object{found};
  }();
  static auto* const known = new std::map<std::pair<int, std::int64_t>, runnel::ForeignStream>;
  static std::mutex mutex;
  // The streams of torch's pools have odd ids, and never end: they are looked at once.
  std::int64_t id = 0;
  if (!ids->is_none()) id = nb::cast<std::int64_t>(nb::object((*ids)(device)[0]));
  if (id % 2 != 0) {
    const std::lock_guard lock{mutex};
    if (const auto found = known->find({device, id}); found != known->end()) return found->second;
  }
  const nb::object number =
      raw->is_none() ? torch->attr("cuda").attr("current_stream")(device).attr("cuda_stream")
                     : (*raw)(device);
  const auto handle = reinterpret_cast<runnel::native::stream>(nb::cast<std::uintptr_t>(number));
  if (id % 2 == 0) return runnel::StreamRef::from_native(handle, runnel::Device{device});
  runnel::ForeignStream wrapped{handle, runnel::Device{device}, share(*torch)};
  const std::lock_guard lock{mutex};
  return known->emplace(std::pair{device, id}, std::move(wrapped)).first->second;
}
[[nodiscard]] runnel::StreamRef cupy_stream() {
  const nb::object stream = nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")();
  const int device =
      nb::cast<int>(nb::module_::import_("cupy").attr("cuda").attr("Device")().attr("id"));
  const auto handle = nb::cast<std::uintptr_t>(stream.attr("ptr"));
  return runnel::StreamRef::from_native(reinterpret_cast<runnel::native::stream>(handle),
                                        runnel::Device{device});
}

}  // namespace

PyStream* find_current(std::optional<runnel::Device> device) {
  const nb::object node = find_node(device);
  return node.is_none() ? nullptr : stream_in(node);
}

nb::object default_stream(runnel::Device device) {
  static auto* const made =
      new std::map<int, nb::object>;  // never freed: the interpreter may be gone by then
  static std::mutex mutex;            // for builds without the interpreter's lock
  {
    const std::lock_guard lock{mutex};
    if (const auto found = made->find(device.ordinal()); found != made->end()) return found->second;
  }
  const runnel::StreamRef view = unlocked([device] { return device.default_stream(); });
  nb::object stream = nb::cast(new PyStream{view}, nb::rv_policy::take_ownership);
  const std::lock_guard lock{mutex};
  return made->emplace(device.ordinal(), stream).first->second;
}

nb::object current_stream(std::optional<runnel::Device> device) {
  const nb::object node = find_node(device);
  if (!node.is_none()) return nb::borrow(item(node, 0));
  return default_stream(device.value_or(runnel::Device{0}));
}

runnel::StreamRef stream_of(nb::handle stream) {
  if (!stream.is_none()) return as_stream(stream).ref;
  const nb::object current = current_stream(std::nullopt);
  return nb::inst_ptr<PyStream>(current)->ref;
}

runnel::StreamRef stream_for(nb::handle stream, Array& to, const Array& from) {
  if (!stream.is_none()) return as_stream(stream).ref;
  const int device = to.device >= 0 ? to.device : from.device;
  if (const PyStream* const current =
          find_current(device >= 0 ? std::optional{runnel::Device{device}} : std::nullopt))
    return current->ref;
  if (!is_on_host()) {
    const auto freed_in_this = [&to](runnel::StreamRef framework_stream) {
      if (to.framework != Framework::none) to.freed_in = framework_stream;
      return framework_stream;
    };
    if (device >= 0 && (to.framework == Framework::torch || from.framework == Framework::torch))
      return freed_in_this(torch_stream(device));
    if (to.framework == Framework::cupy || from.framework == Framework::cupy)
      return freed_in_this(cupy_stream());
  }
  const nb::object meant = default_stream(runnel::Device{device >= 0 ? device : 0});
  return nb::inst_ptr<PyStream>(meant)->ref;
}

void enter_stream(nb::handle stream) {
  static_cast<void>(as_stream(stream));
  set(make_node(stream, get(), stream));
}

void leave_stream(nb::handle stream) {
  nb::object node = get();
  // What was made current since then by a `with` stays: a generator may end within another one.
  // What use() set ends with the `with`.
  std::vector<nb::object> others;
  for (; !node.is_none() && !item(node, 2).is(stream); node = nb::borrow(item(node, 1)))
    if (!item(node, 2).is_none()) others.push_back(node);
  // In another context than the one that was entered there is nothing to leave.
  if (node.is_none()) return;
  node = nb::borrow(item(node, 1));
  for (auto each = others.rbegin(); each != others.rend(); ++each)
    node = make_node(item(*each, 0), node, item(*each, 2));
  set(node);
}

void use_stream(nb::handle stream) {
  // It replaces what use() set on this device since the last `with`, so that many calls make no
  // long list.
  const runnel::Device device = as_stream(stream).ref.device();
  nb::object node = get();
  std::vector<nb::object> others;
  for (; !node.is_none() && item(node, 2).is_none(); node = nb::borrow(item(node, 1)))
    if (!(stream_in(node)->ref.is_valid() && stream_in(node)->ref.device() == device))
      others.push_back(nb::borrow(item(node, 0)));
  for (auto each = others.rbegin(); each != others.rend(); ++each)
    if (nb::inst_ptr<PyStream>(*each)->ref.is_valid()) node = make_node(*each, node, nb::none());
  set(make_node(stream, node, nb::none()));
}

void bind_current(nb::module_& module) {
  find_functions();
  module.def(
      "current_stream",
      [](nb::object device) {
        return current_stream(device.is_none() ? std::nullopt : std::optional{device_of(device)});
      },
      nb::arg("device") = nb::none(),
      nb::sig("def current_stream(device: Device | int | str | None = None) -> Stream"),
      "The stream that ``with stream:`` or ``stream.use()`` made current in this context (a "
      "thread, or\n"
      "a task of asyncio), for ``device`` or for any; else the default stream of that device, or "
      "of\n"
      "device 0.");
  module.def(
      "default_stream", [](nb::object device) { return default_stream(device_of(device)); },
      nb::arg("device") = nb::none(),
      nb::sig("def default_stream(device: Device | int | str | None = None) -> Stream"),
      "The default stream of a device (default: device 0), which CuPy calls ``Stream.null``.");
}

}  // namespace binding
