// SPDX-License-Identifier: Apache-2.0
// C++ exceptions as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>

namespace nb = nanobind;

namespace binding {

/// Registers the translation. The classes are those of runnel/_errors.py.
void bind_errors(nb::module_& module);
/// The Python exception for a C++ one, which is set. Requires: the interpreter's lock.
void set_python_error(const std::exception_ptr& error);
/// The same as an object; None for null.
[[nodiscard]] nb::object python_exception(const std::exception_ptr& error);
/// Raises an exception of that class, whose text PyErr_Format() makes.
template <class... T>
[[noreturn]] void refuse(PyObject* type, const char* format, T... values) {
  PyErr_Format(type, format, values...);
  throw nb::python_error();
}
/// Throws what a call of the interpreter's has set.
inline void check(bool has_failed) {
  if (has_failed) throw nb::python_error();
}
/// What such a call has made. @throws what it has set, for null
[[nodiscard]] inline nb::object made_by(PyObject* made) {
  check(made == nullptr);
  return nb::steal(made);
}
/// A whole number. @throws TypeError; `overflow` for one that is too large
[[nodiscard]] inline Py_ssize_t index_of(nb::handle number, PyObject* overflow) {
  const Py_ssize_t value = PyNumber_AsSsize_t(number.ptr(), overflow);
  check(value == -1 && PyErr_Occurred() != nullptr);
  return value;
}
/// Throws a BufferError or a ValueError of Python.
[[noreturn]] void refuse_buffer(const char* reason);
[[noreturn]] void refuse_read_only();
[[noreturn]] void refuse_value(const char* reason);
/// Raises a TypeError: the argument is not what it should be.
[[noreturn]] void refuse_argument(const char* name, nb::handle object, const char* wanted);
/// Raises Python's TimeoutError.
[[noreturn]] void raise_timeout(const char* what);
/// Throws if a signal's handler raised an exception, as Ctrl-C does.
void check_signals();

}  // namespace binding
