// SPDX-License-Identifier: Apache-2.0
// Streams as Python objects.
#pragma once

#include "references.hpp"

#include <runnel/foreign_stream.hpp>
#include <runnel/stream.hpp>
#include <runnel/stream_pool.hpp>

#include <optional>
#include <variant>

namespace binding {

/// A stream that Python owns, one of another library, one leased from a pool, or a view of a
/// default stream.
struct PyStream {
  PyStream(runnel::StreamRef view) : ref{view} {}
  explicit PyStream(runnel::Stream made) : ref{made}, owner{std::move(made)} {}
  explicit PyStream(const runnel::ForeignStream& foreign) : ref{foreign}, owner{foreign} {}
  explicit PyStream(runnel::StreamLease lease) : ref{lease}, owner{std::move(lease)} {}
  PyStream(const PyStream&) = delete;
  PyStream& operator=(const PyStream&) = delete;
  /// Without the interpreter's lock: a full stream may wait for a function of Python's.
  ~PyStream() {
    if (owner.index() != 0) unlocked([this] { owner = {}; });
  }

  runnel::StreamRef ref;
  SharedObject wrapped;  // of another library
  std::variant<std::monostate, runnel::Stream, runnel::ForeignStream, runnel::StreamLease> owner;
};

/// Waits in slices, between which signals are looked at. Requires: the interpreter's lock, which
/// the wait gives up. @throws TimeoutError
void wait_for_stream(runnel::StreamRef stream, std::optional<double> seconds);
/// The handle in what other libraries call a stream or an event, and its device.
struct Foreign {
  std::uintptr_t handle;
  nb::object device;
};
/// @throws TypeError, ValueError
[[nodiscard]] Foreign read_foreign(nb::handle object, bool is_stream);

/// For the collector of cycles: what a class wraps, which has so many shares if no work of the
/// library's has one.
template <class T, long shares>
int traverse_wrapped(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const SharedObject& wrapped = nb::inst_ptr<T>(self)->wrapped;
  if (wrapped.use_count() == shares) Py_VISIT(wrapped->object.ptr());
  return 0;
}
template <class T>
int clear_wrapped(PyObject* self) {
  T& object = *nb::inst_ptr<T>(self);
  unlocked([&] { object.owner = {}; });  // as the destructor does
  object.wrapped.reset();
  drop_now();
  return 0;
}

/// The stream in an object. @throws TypeError
[[nodiscard]] PyStream& as_stream(nb::handle object);
void bind_streams(nb::module_& module);

}  // namespace binding
