// SPDX-License-Identifier: Apache-2.0
// The current stream, which is the context's: a contextvars.ContextVar, so that tasks of asyncio do
// not see each other's.
#pragma once

#include "arrays.hpp"
#include "streams.hpp"

namespace binding {

/// The stream that an argument means: a Stream, or None for the current one. @throws TypeError
[[nodiscard]] runnel::StreamRef stream_of(nb::handle stream);
/// The same for a copy: where no stream is current, the stream of the framework of the arrays.
[[nodiscard]] runnel::StreamRef stream_for(nb::handle stream, Array& to, const Array& from);
/// The stream that is set for the device in this context, or null.
[[nodiscard]] PyStream* find_current(std::optional<runnel::Device> device);
/// The same as an object: where none is set the default stream, of device 0 if no device is named.
[[nodiscard]] nb::object current_stream(std::optional<runnel::Device> device);
[[nodiscard]] nb::object default_stream(runnel::Device device);

void enter_stream(nb::handle stream);
void leave_stream(nb::handle stream);
void use_stream(nb::handle stream);
void bind_current(nb::module_& module);

}  // namespace binding
