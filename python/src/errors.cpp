// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

#include "references.hpp"

#include <runnel/error.hpp>
#include <runnel/overlap.hpp>

#include <nanobind/stl/string.h>

#include <string>
#include <string_view>
#include <typeinfo>

namespace binding {
namespace {

/// A class of runnel/_errors.py, which was imported before this module.
[[nodiscard]] nb::object error_class(const char* name) {
  return nb::module_::import_("runnel._errors").attr(name);
}

[[nodiscard]] const char* class_of(runnel::errc code) noexcept {
  switch (code) {
    case runnel::errc::no_device:
    case runnel::errc::driver_too_old:
      return "NoDevice";
    case runnel::errc::invalid_argument:
    case runnel::errc::invalid_device:
    case runnel::errc::invalid_handle:
      return "InvalidArgument";
    case runnel::errc::out_of_memory:
      return "OutOfMemoryError";
    case runnel::errc::not_ready:
      return "NotReady";
    case runnel::errc::not_supported:
      return "NotSupported";
    default:
      return "Error";
  }
}

[[nodiscard]] nb::object describe(const runnel::Error& error, const char* class_name) {
  const auto code = static_cast<runnel::errc>(error.code().value());
  std::string text = error.what();
  if (class_name == std::string_view{"NoDevice"})
    text.append("\n").append(
        nb::cast<std::string>(nb::module_::import_("runnel").attr("why_no_device")()));
  nb::object made = error_class(class_name)(text);
  made.attr("code") = runnel::name(code);
  made.attr("native_code") = error.native_code();
  made.attr("native_name") = error.native_name();
  made.attr("operation") = error.operation();
  return made;
}

[[nodiscard]] nb::object describe_overlap(const runnel::OverlapError& error) {
  nb::object cause = nb::none();
  if (error.nested_ptr() != nullptr) cause = python_exception(error.nested_ptr());
  // Ctrl-C and sys.exit() are no failures of a chunk.
  if (!cause.is_none() && !PyErr_GivenExceptionMatches(cause.ptr(), PyExc_Exception)) return cause;
  nb::object made = describe(error, "OverlapError");
  made.attr("chunk") = error.chunk();
  made.attr("__cause__") = cause;
  return made;
}

/// The class that `raise` needs is the exception's own.
void set(const nb::object& exception) { PyErr_SetObject(exception.type().ptr(), exception.ptr()); }

[[nodiscard]] nb::object describe_current() {
  try {
    throw;
  } catch (const PythonFailure& failure) {
    return failure.exception();
  } catch (const runnel::OverlapError& error) {
    return describe_overlap(error);
  } catch (const runnel::Error& error) {
    return describe(error, class_of(static_cast<runnel::errc>(error.code().value())));
  } catch (const std::bad_alloc&) {
    return error_class("OutOfMemoryError")("out of host memory");
  } catch (nb::python_error& error) {
    return nb::borrow(error.value());
  } catch (const std::exception& error) {
    return error_class("Error")(error.what());
  } catch (...) {
    return error_class("Error")("a function threw something that is no std::exception");
  }
}

}  // namespace

nb::object python_exception(const std::exception_ptr& error) {
  if (error == nullptr) return nb::none();
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return describe_current();
  }
}

void set_python_error(const std::exception_ptr& error) { set(python_exception(error)); }

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const PythonFailure& failure) {
      failure.restore();
    } catch (const runnel::Error&) {
      set_python_error(error);
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError,
                      "a value has another type than its protocol says: an array's, a stream's, or "
                      "a function's result");
    }
  });
}

void refuse_buffer(const char* reason) { refuse(PyExc_BufferError, "%s", reason); }
void refuse_read_only() {
  refuse_buffer(
      "the array that is written is read-only: the order is copy(destination, source), and "
      "overlap(source, destination, function)");
}
void refuse_value(const char* reason) { refuse(PyExc_ValueError, "%s", reason); }
void refuse_argument(const char* name, nb::handle object, const char* wanted) {
  refuse(PyExc_TypeError, "%s=%R: it is %s", name, object.ptr(), wanted);
}
void raise_timeout(const char* what) { refuse(PyExc_TimeoutError, "%s", what); }
void check_signals() { check(PyErr_CheckSignals() != 0); }

}  // namespace binding
