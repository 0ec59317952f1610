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

  runnel::StreamRef ref;
  std::variant<std::monostate, runnel::Stream, runnel::ForeignStream, runnel::StreamLease> owner;
};

/// Waits in slices, between which signals are looked at. Requires: the interpreter's lock, which
/// the wait gives up. @throws TimeoutError
void wait_for_stream(runnel::StreamRef stream, std::optional<double> seconds);
/// The stream in an object. @throws TypeError
[[nodiscard]] PyStream& as_stream(nb::handle object);
void bind_streams(nb::module_& module);

}  // namespace binding
