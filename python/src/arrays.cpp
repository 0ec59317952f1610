// SPDX-License-Identifier: Apache-2.0
#include "arrays.hpp"

#include "blocks.hpp"
#include "dlpack.hpp"
#include "errors.hpp"

#include <nanobind/stl/string.h>

#include <atomic>
#include <string>

namespace binding {
namespace {

[[nodiscard]] std::size_t to_size(nb::handle number) {
  const std::size_t value = PyLong_AsSize_t(number.ptr());
  if (value == static_cast<std::size_t>(-1) && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}
[[nodiscard]] std::ptrdiff_t to_difference(nb::handle number) {
  const Py_ssize_t value = PyLong_AsSsize_t(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}
[[nodiscard]] nb::object attribute(nb::handle object, const nb::object& name) {
  PyObject* const found = PyObject_GetAttr(object.ptr(), name.ptr());
  if (found == nullptr) throw nb::python_error();
  return nb::steal(found);
}
/// The attribute, or null if there is none.
[[nodiscard]] nb::object attribute_or_null(nb::handle object, const nb::object& name) {
  PyObject* const found = PyObject_GetAttr(object.ptr(), name.ptr());
  if (found != nullptr) return nb::steal(found);
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return {};
}
[[nodiscard]] nb::object call_method(nb::handle object, const nb::object& name) {
  PyObject* arguments[] = {object.ptr()};
  PyObject* const result = PyObject_VectorcallMethod(name.ptr(), arguments, 1, nullptr);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}
[[nodiscard]] nb::object intern(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }

/// For how a stranger reads it: "no array: a list has no memory ...".
[[noreturn]] void refuse_object(nb::handle object) {
  PyErr_Format(PyExc_TypeError,
               "an object of type %R has no memory that runnel can copy: it wants an array with the buffer protocol (NumPy, mmap, bytes), "
               "a torch tensor, __cuda_array_interface__ or __dlpack__",
               reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  throw nb::python_error();
}

}  // namespace

const Names& names() {
  static const Names* const made = new Names{intern("data_ptr"),
                                             intern("nbytes"),
                                             intern("numel"),
                                             intern("is_contiguous"),
                                             intern("is_cuda"),
                                             intern("device"),
                                             intern("index"),
                                             intern("shape"),
                                             intern("stride"),
                                             intern("element_size"),
                                             intern("__cuda_array_interface__"),
                                             intern("__dlpack__"),
                                             intern("__dlpack_device__"),
                                             intern("dtype"),
                                             intern("hasobject")};
  return *made;
}

namespace {
/// A class of a module that may be loaded later. Never given back: the module stays.
struct LaterClass {
  nb::object module, name;
  std::atomic<PyObject*> found = nullptr;
  [[nodiscard]] PyObject* find() {
    static PyObject* const modules = PyImport_GetModuleDict();
    if (PyObject* const type = found.load(std::memory_order_relaxed)) return type;
    PyObject* const loaded = PyDict_GetItemWithError(modules, module.ptr());
    if (loaded == nullptr) return nullptr;
    PyObject* const type = PyObject_GetAttr(loaded, name.ptr());  // null while the module is being imported
    if (type == nullptr) PyErr_Clear();
    found = type;
    return type;
  }
};
}  // namespace

PyObject* torch_tensor_type() {
  static auto* const torch = new LaterClass{intern("torch"), intern("Tensor")};
  return torch->find();
}
PyObject* numpy_array_type() {
  static auto* const numpy = new LaterClass{intern("numpy"), intern("ndarray")};
  return numpy->find();
}

Array::~Array() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

void Array::open(nb::handle object, bool is_written) {
  if (open_block(object) || open_torch(object) || open_buffer(object, is_written) || open_cuda_array(object, is_written) ||
      open_dlpack(object, is_written))
    return;
  refuse_object(object);
}

bool Array::open_block(nb::handle object) {
  const Block* const block = as_block(object);
  if (block == nullptr) return false;
  data = block->data();
  bytes = block->bytes();
  kind = runnel::MemoryKind::device;
  device = block->device();
  owner_ = nb::borrow(object);
  return true;
}

/// NumPy's arrays of objects hold references, which a copy of bytes would not count. Their buffer does not say what they hold unless it is
/// asked for its format, which arrays of times refuse to tell.
void Array::refuse_objects(nb::handle object) const {
  if (item_bytes % sizeof(PyObject*) != 0) return;
  auto* const type = reinterpret_cast<PyTypeObject*>(numpy_array_type());
  if (type == nullptr || PyType_IsSubtype(Py_TYPE(object.ptr()), type) == 0) return;
  if (!attribute(attribute(object, names().dtype), names().hasobject).is(nb::handle(Py_True))) return;
  PyErr_SetString(PyExc_TypeError, "an array of Python objects cannot be copied as bytes: its elements are references");
  throw nb::python_error();
}

bool Array::open_buffer(nb::handle object, bool is_written) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES) != 0) throw nb::python_error();
  if (is_written && view_.readonly != 0) refuse_buffer("the destination is read-only: the order is copy(destination, source)");
  data = view_.buf;
  bytes = static_cast<std::size_t>(view_.len);
  item_bytes = static_cast<std::size_t>(view_.itemsize);
  refuse_objects(object);
  if (view_.strides == nullptr || PyBuffer_IsContiguous(&view_, 'C') != 0) return true;
  if (view_.ndim > most_dimensions) refuse_value("an array of more than 16 dimensions that is not contiguous");
  is_contiguous = false;
  dimensions = view_.ndim;
  for (int i = 0; i < dimensions; ++i) {
    shape[static_cast<std::size_t>(i)] = view_.shape[i];
    strides[static_cast<std::size_t>(i)] = view_.strides[i];
  }
  return true;
}

void Array::set_shape(nb::handle of_shape, nb::handle of_strides, std::ptrdiff_t stride_unit) {
  const nb::object sizes = nb::steal(PySequence_Tuple(of_shape.ptr()));
  const nb::object steps = nb::steal(PySequence_Tuple(of_strides.ptr()));
  if (!sizes.is_valid() || !steps.is_valid()) throw nb::python_error();
  dimensions = static_cast<int>(PyTuple_Size(sizes.ptr()));
  if (dimensions > most_dimensions || PyTuple_Size(steps.ptr()) != dimensions) refuse_value("an array of more than 16 dimensions");
  for (int i = 0; i < dimensions; ++i) {
    const auto at = static_cast<std::size_t>(i);
    shape[at] = to_difference(PyTuple_GetItem(sizes.ptr(), i));
    strides[at] = to_difference(PyTuple_GetItem(steps.ptr(), i)) * stride_unit;
  }
}

/// Sets bytes and is_contiguous by shape and strides.
void Array::find_size() noexcept {
  bytes = item_bytes;
  std::ptrdiff_t expected = static_cast<std::ptrdiff_t>(item_bytes);
  is_contiguous = true;
  for (int i = dimensions - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (shape[at] != 1 && strides[at] != expected) is_contiguous = false;
    expected *= shape[at];
    bytes *= static_cast<std::size_t>(shape[at]);
  }
  if (bytes == 0) is_contiguous = true;
}

bool Array::open_torch(nb::handle object) {
  PyObject* const type = torch_tensor_type();
  if (type == nullptr || (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != type && PyObject_IsInstance(object.ptr(), type) != 1)) {
    PyErr_Clear();
    return false;
  }
  const Names& n = names();
  data = reinterpret_cast<void*>(to_size(call_method(object, n.data_ptr)));
  const nb::object size = attribute_or_null(object, n.nbytes);  // not in torch before 2.1
  bytes = size.is_valid() ? to_size(size) : to_size(call_method(object, n.numel)) * to_size(call_method(object, n.element_size));
  framework = Framework::torch;
  if (attribute(object, n.is_cuda).is(nb::handle(Py_True))) {
    kind = runnel::MemoryKind::device;
    device = static_cast<int>(to_difference(attribute(attribute(object, n.device), n.index)));
  } else if (data == nullptr && bytes > 0) {
    refuse_value("the tensor has no memory here: it is on a device that runnel does not know");
  }
  if (!call_method(object, n.is_contiguous).is(nb::handle(Py_True))) {
    item_bytes = to_size(call_method(object, n.element_size));
    set_shape(attribute(object, n.shape), call_method(object, n.stride), static_cast<std::ptrdiff_t>(item_bytes));
    find_size();
  }
  owner_ = nb::borrow(object);
  return true;
}

bool Array::open_cuda_array(nb::handle object, bool is_written) {
  const nb::object found = attribute_or_null(object, names().cuda_array);
  if (!found.is_valid()) return false;
  const nb::dict description = nb::cast<nb::dict>(found);
  const nb::tuple place = nb::cast<nb::tuple>(description["data"]);
  data = reinterpret_cast<void*>(to_size(place[0]));
  if (is_written && nb::cast<bool>(place[1])) refuse_buffer("the destination is read-only: the order is copy(destination, source)");
  const std::string type = nb::cast<std::string>(nb::object(description["typestr"]));
  item_bytes = type.size() > 2 ? std::stoul(type.substr(2)) : 1;
  const nb::object steps = nb::borrow(description.attr("get")("strides"));
  if (steps.is_none()) {
    bytes = item_bytes;
    for (nb::handle each : nb::borrow(nb::handle(description["shape"]))) bytes *= to_size(each);
  } else {
    set_shape(description["shape"], steps, 1);
    find_size();
  }
  const nb::object module = nb::borrow(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())))).attr("__module__");
  if (nb::cast<std::string>(nb::object(module)).rfind("cupy", 0) == 0) framework = Framework::cupy;
  owner_ = nb::borrow(object);
  return true;
}

bool Array::open_dlpack(nb::handle object, bool is_written) {
  const nb::object make = attribute_or_null(object, names().dlpack);
  if (!make.is_valid()) return false;
  const nb::object place = call_method(object, names().dlpack_device);
  const int device_type = nb::cast<int>(place[0]);
  // Orders nothing: the caller does, as with every other array.
  nb::dict keywords;
  if (device_type != dlpack::cpu && device_type != dlpack::cuda_host && device_type != dlpack::rocm_host) keywords["stream"] = -1;
  owner_ = nb::steal(PyObject_Call(make.ptr(), nb::tuple(nb::make_tuple()).ptr(), keywords.ptr()));
  if (!owner_.is_valid()) throw nb::python_error();
  const dlpack::Tensor& tensor = dlpack::tensor_of(owner_, is_written);
  data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  item_bytes = (static_cast<std::size_t>(tensor.dtype.bits) * tensor.dtype.lanes + 7) / 8;
  dimensions = tensor.ndim;
  if (dimensions > most_dimensions) refuse_value("an array of more than 16 dimensions");
  std::ptrdiff_t step = static_cast<std::ptrdiff_t>(item_bytes);
  for (int i = dimensions - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    shape[at] = tensor.shape[i];
    strides[at] = tensor.strides != nullptr ? tensor.strides[i] * static_cast<std::ptrdiff_t>(item_bytes) : step;
    step *= shape[at];
  }
  find_size();
  return true;
}

}  // namespace binding
