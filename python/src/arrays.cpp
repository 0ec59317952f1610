// SPDX-License-Identifier: Apache-2.0
#include "arrays.hpp"

#include "backend.hpp"
#include "blocks.hpp"
#include "dlpack.hpp"
#include "errors.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <climits>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace binding {
namespace {

[[nodiscard]] std::size_t to_size(nb::handle number) {
  const std::size_t value = PyLong_AsSize_t(number.ptr());
  check(value == static_cast<std::size_t>(-1) && PyErr_Occurred() != nullptr);
  return value;
}
[[nodiscard]] std::ptrdiff_t to_difference(nb::handle number) {
  const Py_ssize_t value = PyLong_AsSsize_t(number.ptr());
  check(value == -1 && PyErr_Occurred() != nullptr);
  return value;
}
[[nodiscard]] nb::object attribute(nb::handle object, const nb::object& name) {
  return made_by(PyObject_GetAttr(object.ptr(), name.ptr()));
}
[[nodiscard]] bool is_true(const nb::object& object) { return object.is(nb::handle(Py_True)); }
/// The attribute, or null if there is none.
[[nodiscard]] nb::object attribute_or_null(nb::handle object, const nb::object& name) {
  PyObject* const found = PyObject_GetAttr(object.ptr(), name.ptr());
  if (found != nullptr) return nb::steal(found);
  check(PyErr_ExceptionMatches(PyExc_AttributeError) == 0);
  PyErr_Clear();
  return {};
}
[[nodiscard]] nb::object call_method(nb::handle object, const nb::object& name) {
  PyObject* arguments[] = {object.ptr()};
  return made_by(PyObject_VectorcallMethod(name.ptr(), arguments, 1, nullptr));
}
[[nodiscard]] nb::object intern(const char* name) {
  return nb::steal(PyUnicode_InternFromString(name));
}

/// For how a stranger reads it: "no array: a list has no memory ...".
[[noreturn]] void refuse_object(nb::handle object) {
  if (nb::hasattr(object, "to_numpy")) {  // a column or a table of pandas, polars or pyarrow
    refuse(PyExc_TypeError,
           "an object of type %R is no array: write x.to_numpy(), which has its numbers",
           reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  }
  refuse(PyExc_TypeError,
         "an object of type %R has no memory that runnel can copy: it wants an array with "
         "the buffer protocol (NumPy, mmap, bytes), "
         "a torch tensor, __cuda_array_interface__ or __dlpack__",
         reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
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
                                             intern("hasobject"),
                                             intern("is_cpu"),
                                             intern("is_conj"),
                                             intern("is_neg"),
                                             intern("untyped_storage")};
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
    PyObject* const type =
        PyObject_GetAttr(loaded, name.ptr());  // null while the module is being imported
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

int Array::traverse(visitproc visit, void* arg) const {
  Py_VISIT(view_.obj);
  Py_VISIT(owner_.ptr());
  Py_VISIT(storage_.ptr());
  return 0;
}

void Array::open(nb::handle object, bool is_written) {
  if (open_block(object) || open_torch(object) || open_buffer(object, is_written) ||
      open_cuda_array(object, is_written) || open_dlpack(object, is_written))
    return;
  refuse_object(object);
}

std::size_t size_of(std::span<const std::ptrdiff_t> shape, std::size_t item_bytes) {
  std::size_t bytes = item_bytes;
  bool is_too_large = false;
  for (const std::ptrdiff_t size : shape) {
    if (size < 0) refuse_value("the array's shape has a negative size");
    is_too_large |= __builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes);
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  if (is_too_large || bytes > PTRDIFF_MAX)
    refuse_value("the array's shape is larger than any memory");
  return bytes;
}

bool Array::open_block(nb::handle object) {
  const Block* const block = as_block(object);
  if (block == nullptr) return false;
  data = block->data();
  bytes = block->bytes();
  kind = runnel::MemoryKind::device;
  device = block->device();
  is_on_device = true;
  freed_in = block->stream();
  memory_ = block->memory->owned;
  type = block->type;
  is_bytes = block->is_bytes;
  item_bytes = block->type->type.bits / 8U;
  if (set_dimensions(std::ssize(block->shape)))
    std::copy(block->shape.begin(), block->shape.end(), shape.begin());
  if (!block->strides.empty()) {
    if (dimensions < 0) refuse_value("an array of more than 16 dimensions");
    std::transform(block->strides.begin(), block->strides.end(), strides.begin(),
                   [this](auto step) { return step * static_cast<std::ptrdiff_t>(item_bytes); });
    find_size();
  }
  owner_ = nb::borrow(object);
  return true;
}

/// Whether there is room for so many. @throws ValueError for a number that nothing has
bool Array::set_dimensions(std::ptrdiff_t count) {
  if (count < 0) refuse_value("the array has a negative number of dimensions");
  dimensions = count > max_dimensions ? -1 : static_cast<int>(count);
  return dimensions >= 0;
}

namespace {
[[nodiscard]] bool is_numpy_array(nb::handle object) {
  auto* const type = reinterpret_cast<PyTypeObject*>(numpy_array_type());
  return type != nullptr && PyType_IsSubtype(Py_TYPE(object.ptr()), type) != 0;
}
/// Whether a buffer's format, as "T{b:flag:O:value:}", has references; the names of fields stand
/// between colons.
[[nodiscard]] bool has_references(const char* format) {
  bool is_name = false;
  for (; format != nullptr && *format != '\0'; ++format) {
    if (*format == ':') is_name = !is_name;
    if (*format == 'O' && !is_name) return true;
  }
  return false;
}
}  // namespace

/// Sets the type. A copy of bytes would not count the references in arrays of Python objects.
/// NumPy's arrays of times refuse to tell their format.
void Array::set_buffer_type(nb::handle object, bool is_numpy) {
  bool has_objects = false;
  if (is_numpy) {
    const nb::object of = attribute(object, names().dtype);
    set_type(of);
    has_objects = type == nullptr && is_true(attribute(of, names().hasobject));
  } else {
    type = type_of_format(view_.format, item_bytes);
    has_objects = type == nullptr && has_references(view_.format);
  }
  if (!has_objects) return;
  refuse(PyExc_TypeError,
         "an array of Python objects cannot be copied as bytes: its elements are references");
}

void Array::set_type(nb::handle of) {
  type = type_of_dtype(of);
  if (type == nullptr) dtype = nb::borrow(of);
}

bool Array::open_buffer(nb::handle object, bool is_written) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  const bool is_numpy = is_numpy_array(object);
  check(PyObject_GetBuffer(object.ptr(), &view_,
                           is_numpy ? PyBUF_STRIDES : PyBUF_STRIDES | PyBUF_FORMAT) != 0);
  if (is_written && view_.readonly != 0) refuse_read_only();
  data = view_.buf;
  bytes = static_cast<std::size_t>(view_.len);
  item_bytes = static_cast<std::size_t>(view_.itemsize);
  set_buffer_type(object, is_numpy);
  is_contiguous = view_.strides == nullptr || PyBuffer_IsContiguous(&view_, 'C') != 0;
  if (!set_dimensions(view_.ndim)) {
    if (!is_contiguous) refuse_value("an array of more than 16 dimensions that is not contiguous");
    return true;
  }
  for (int i = 0; i < dimensions; ++i) {
    const auto at = static_cast<std::size_t>(i);
    shape[at] = view_.shape != nullptr ? view_.shape[i] : view_.len / view_.itemsize;
    if (!is_contiguous) strides[at] = view_.strides[i];
  }
  return true;
}

namespace {
/// A sequence as a tuple, which torch's sizes are already.
[[nodiscard]] nb::object tuple_of(nb::handle sequence) {
  return PyTuple_Check(sequence.ptr()) != 0 ? nb::borrow(sequence)
                                            : made_by(PySequence_Tuple(sequence.ptr()));
}
}  // namespace

void Array::set_sizes(nb::handle sizes) {
  const nb::object all = tuple_of(sizes);
  if (!set_dimensions(PyTuple_Size(all.ptr()))) return;
  for (int i = 0; i < dimensions; ++i)
    shape[static_cast<std::size_t>(i)] = to_difference(PyTuple_GetItem(all.ptr(), i));
}

/// @throws ValueError if there are others than dimensions
void Array::set_strides(nb::handle steps, std::ptrdiff_t unit) {
  if (dimensions < 0) refuse_value("an array of more than 16 dimensions");
  const nb::object all = tuple_of(steps);
  if (PyTuple_Size(all.ptr()) != dimensions)
    refuse_value("the array's shape and its strides have different lengths");
  for (int i = 0; i < dimensions; ++i)
    strides[static_cast<std::size_t>(i)] = to_difference(PyTuple_GetItem(all.ptr(), i)) * unit;
}

/// The strides of an array without gaps. @throws ValueError
void Array::set_packed_strides() {
  const auto all = std::span{shape}.first(static_cast<std::size_t>(dimensions));
  for (std::size_t i = 0; i < all.size(); ++i)
    strides[i] = static_cast<std::ptrdiff_t>(size_of(all.subspan(i + 1), item_bytes));
}

/// Sets bytes and is_contiguous by shape and strides. @throws ValueError for sizes that no memory
/// has
void Array::find_size() {
  bytes = size_of(std::span{shape}.first(static_cast<std::size_t>(dimensions)), item_bytes);
  is_contiguous = true;
  if (bytes == 0) return;
  auto expected = static_cast<std::ptrdiff_t>(item_bytes);
  for (int i = dimensions - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (shape[at] != 1 && strides[at] != expected) is_contiguous = false;
    expected *= shape[at];
  }
}

namespace {
/// Memory has an address if it has bytes. @throws ValueError
void refuse_null(const void* data, std::size_t bytes) {
  if (data == nullptr && bytes > 0) refuse_value("the array has no memory here: its address is 0");
}
/// @throws BufferError where this process's backend has no device
void refuse_device_memory() {
  if (is_on_host())
    refuse_buffer(
        "the array is in a GPU's memory, and runnel uses its host backend: runnel.why_no_device() "
        "says why, and "
        "RUNNEL_BACKEND chooses another one");
}
}  // namespace

namespace {
/// A conjugate or a negative of torch's may be a view whose memory has the numbers before that.
void refuse_unresolved(nb::handle tensor) {
  for (const nb::object* const name : {&names().is_conj, &names().is_neg}) {
    const nb::object question = attribute_or_null(tensor, *name);  // not in old torch
    if (question.is_valid() && is_true(question()))
      refuse_value(
          "the tensor's memory has other numbers than the tensor, which is a conjugate or a "
          "negative: "
          "x.resolve_conj().resolve_neg() makes one that has them");
  }
}
/// The memory of a tensor, which `x.data = y` and x.set_() take away from it while a copy is under
/// way. Null for a tensor that does not give it, and in torch before 2.0.
[[nodiscard]] nb::object storage_of(nb::handle tensor) {
  PyObject* arguments[] = {tensor.ptr()};
  PyObject* const found =
      PyObject_VectorcallMethod(names().untyped_storage.ptr(), arguments, 1, nullptr);
  if (found == nullptr) PyErr_Clear();
  return nb::steal(found);
}
}  // namespace

bool Array::open_torch(nb::handle object) {
  PyObject* const tensor = torch_tensor_type();
  if (tensor == nullptr || (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != tensor &&
                            PyObject_IsInstance(object.ptr(), tensor) != 1)) {
    PyErr_Clear();
    return false;
  }
  const Names& n = names();
  data = reinterpret_cast<void*>(to_size(call_method(object, n.data_ptr)));
  const nb::object size = attribute_or_null(object, n.nbytes);  // not in torch before 2.1
  bytes = size.is_valid() ? to_size(size)
                          : to_size(call_method(object, n.numel)) *
                                to_size(call_method(object, n.element_size));
  framework = Framework::torch;
  if (is_true(attribute(object, n.is_cuda))) {
    refuse_device_memory();
    kind = runnel::MemoryKind::device;
    is_on_device = true;
    device = static_cast<int>(to_difference(attribute(attribute(object, n.device), n.index)));
  } else {
    const nb::object is_cpu = attribute_or_null(object, n.is_cpu);  // not in old torch
    if (is_cpu.is_valid() && !is_true(is_cpu))
      refuse_value("the tensor has no memory here: it is on a device that runnel does not know");
  }
  refuse_null(data, bytes);
  refuse_unresolved(object);
  set_type(attribute(object, n.dtype));
  item_bytes =
      type != nullptr ? type->type.bits / 8U : to_size(call_method(object, n.element_size));
  set_sizes(attribute(object, n.shape));
  if (!is_true(call_method(object, n.is_contiguous))) {
    set_strides(call_method(object, n.stride), static_cast<std::ptrdiff_t>(item_bytes));
    find_size();
  }
  owner_ = nb::borrow(object);
  storage_ = storage_of(object);
  return true;
}

namespace {
/// An entry of __cuda_array_interface__. @throws ValueError if it is not there
[[nodiscard]] nb::object entry(const nb::dict& description, const char* name) {
  PyObject* const found = PyDict_GetItemString(description.ptr(), name);
  if (found != nullptr) return nb::borrow(found);
  refuse(PyExc_ValueError, "__cuda_array_interface__ has no entry '%s'", name);
}
/// The bytes of an element of a type as "<f4". @throws ValueError
[[nodiscard]] std::size_t item_size(const nb::object& type) {
  const auto text = nb::cast<std::string>(type);
  std::size_t bytes = 0;
  const char* const end = text.data() + text.size();
  const bool is_number = text.size() > 2 &&
                         std::from_chars(text.data() + 2, end, bytes).ptr == end &&
                         bytes <= INT_MAX;
  if (is_number && text[1] != 'O' && text[1] != 't') return text[1] == 'U' ? bytes * 4 : bytes;
  refuse(PyExc_ValueError,
         "__cuda_array_interface__ has elements of the type %R: one is written as '<f4'",
         type.ptr());
}
}  // namespace

bool Array::open_cuda_array(nb::handle object, bool is_written) {
  const nb::object found = attribute_or_null(object, names().cuda_array);
  if (!found.is_valid()) return false;
  refuse_device_memory();
  is_on_device = true;
  const nb::dict description = nb::cast<nb::dict>(found);
  const nb::object place = entry(description, "data");
  data = reinterpret_cast<void*>(to_size(nb::object(place[0])));
  const bool is_read_only = nb::cast<bool>(nb::object(place[1]));
  if (is_written && is_read_only) refuse_read_only();
  const nb::object letters = entry(description, "typestr");
  item_bytes = item_size(letters);
  type = type_of_letters(nb::cast<std::string>(letters));
  const nb::object steps = nb::borrow(description.attr("get")("strides"));
  set_sizes(entry(description, "shape"));
  if (dimensions < 0) refuse_value("an array of more than 16 dimensions");
  if (steps.is_none())
    set_packed_strides();
  else
    set_strides(steps, 1);
  find_size();
  refuse_null(data, bytes);
  const nb::object module =
      nb::borrow(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())))).attr("__module__");
  if (nb::cast<std::string>(nb::object(module)).rfind("cupy", 0) == 0) framework = Framework::cupy;
  owner_ = nb::borrow(object);
  return true;
}

namespace {
/// @throws BufferError for memory that this backend cannot reach
void refuse_other_devices(int type) {
  using namespace dlpack;
  const bool is_of_host =
      type == cpu || type == cuda_host || type == rocm_host || type == cuda_managed;
  if (is_of_host || (type == cuda && backend == "cuda") || (type == rocm && backend == "hip"))
    return;
  if (type == cuda || type == rocm) refuse_device_memory();
  refuse_buffer(
      "the array is on a device that runnel does not know: __dlpack_device__() names another kind");
}

/// Asks the array for its capsule. Since 1.0, DLPack says whether memory is read-only. Older
/// libraries do not know the argument that asks for it.
[[nodiscard]] nb::object request_capsule(const nb::object& make, int device_type) {
  nb::dict keywords;
  // Orders nothing: the caller does, as with every other array.
  if (device_type != dlpack::cpu && device_type != dlpack::cuda_host &&
      device_type != dlpack::rocm_host)
    keywords["stream"] = -1;
  keywords["max_version"] = nb::make_tuple(1, 0);
  const nb::tuple nothing = nb::make_tuple();
  nb::object capsule = nb::steal(PyObject_Call(make.ptr(), nothing.ptr(), keywords.ptr()));
  if (!capsule.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    PyErr_Clear();
    nb::del(keywords["max_version"]);
    capsule = nb::steal(PyObject_Call(make.ptr(), nothing.ptr(), keywords.ptr()));
  }
  check(!capsule.is_valid());
  return capsule;
}
}  // namespace

bool Array::open_dlpack(nb::handle object, bool is_written) {
  const nb::object make = attribute_or_null(object, names().dlpack);
  if (!make.is_valid()) return false;
  const nb::object place = call_method(object, names().dlpack_device);
  const int device_type = nb::cast<int>(nb::object(place[0]));
  refuse_other_devices(device_type);
  is_on_device = device_type != dlpack::cpu;
  owner_ = request_capsule(make, device_type);
  const dlpack::Tensor& tensor = dlpack::tensor_of(owner_, is_written);
  data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const std::size_t bits = std::size_t{tensor.dtype.bits} * tensor.dtype.lanes;
  if (bits % 8 != 0) refuse_value("the array has elements that share bytes, as int4's");
  item_bytes = bits / 8;
  type = type_of_dlpack(tensor.dtype);
  if (!set_dimensions(tensor.ndim)) refuse_value("an array of more than 16 dimensions");
  for (int i = 0; i < dimensions; ++i) shape[static_cast<std::size_t>(i)] = tensor.shape[i];
  set_packed_strides();
  for (int i = 0; i < dimensions && tensor.strides != nullptr; ++i)
    strides[static_cast<std::size_t>(i)] =
        tensor.strides[i] * static_cast<std::ptrdiff_t>(item_bytes);
  find_size();
  refuse_null(tensor.data, bytes);
  return true;
}

namespace {
[[nodiscard]] bool is_bytes(const Array& array) {
  return array.is_bytes || (array.type == bytes_type() && array.dimensions == 1);
}
[[nodiscard]] bool is_same_type(const Array& a, const Array& b) {
  if (a.type != nullptr || b.type != nullptr) return have_one_type(a.type, b.type);
  if (!a.dtype.is_valid() || !b.dtype.is_valid()) return a.item_bytes == b.item_bytes;
  const int is_equal = PyObject_RichCompareBool(a.dtype.ptr(), b.dtype.ptr(), Py_EQ);
  check(is_equal < 0);
  return is_equal != 0;
}
/// Dimensions of one element aside.
[[nodiscard]] bool is_same_shape(const Array& a, const Array& b) {
  if (a.dimensions < 0 || b.dimensions < 0) return true;
  const auto sizes = [](const Array& array) {
    std::vector<std::ptrdiff_t> made{array.shape.begin(), array.shape.begin() + array.dimensions};
    std::erase(made, 1);
    return made;
  };
  const auto all = [](const Array& array) { return array.shape.begin() + array.dimensions; };
  return std::equal(a.shape.begin(), all(a), b.shape.begin(), all(b)) || sizes(a) == sizes(b);
}
[[nodiscard]] std::string describe(const Array& array) {
  std::string text = array.type != nullptr ? array.type->name
                     : array.dtype.is_valid()
                         ? nb::cast<std::string>(nb::str(array.dtype))
                         : "elements of " + std::to_string(array.item_bytes) + " bytes";
  text += " (";
  for (int i = 0; i < array.dimensions; ++i)
    text += (i > 0 ? ", " : "") + std::to_string(array.shape[static_cast<std::size_t>(i)]);
  return text + (array.dimensions == 1 ? ",)" : ")");
}
}  // namespace

void refuse_other_elements(const Array& to, const Array& from) {
  if (to.bytes == 0 || is_bytes(to) || is_bytes(from)) return;
  const bool is_type = is_same_type(to, from);
  if (is_type && is_same_shape(to, from)) return;
  refuse(PyExc_ValueError,
         "the destination is %s and the source %s: a copy converts nothing. Give both one "
         "%s, or write unsafe=True to copy the bytes as they are",
         describe(to).c_str(), describe(from).c_str(), is_type ? "shape" : "type");
}

void Array::count_write() const {
  if (framework != Framework::torch) return;
  static const nb::object* const increment = [] {
    const nb::object torch = nb::module_::import_("torch");
    return new nb::object{nb::getattr(torch.attr("_C"), "_increment_version", nb::none())};
  }();
  if (increment->is_none()) return;  // in old torch
  const nb::object all = nb::make_tuple(owner_);
  nb::object done = nb::steal(PyObject_CallFunctionObjArgs(increment->ptr(), all.ptr(), nullptr));
  if (!done.is_valid()) {  // older torch takes one tensor
    PyErr_Clear();
    done = nb::steal(PyObject_CallFunctionObjArgs(increment->ptr(), owner_.ptr(), nullptr));
  }
  check(!done.is_valid());
}

}  // namespace binding
