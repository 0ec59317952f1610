// SPDX-License-Identifier: Apache-2.0
// Completion without waiting: functions, and asyncio.
#pragma once

#include "events.hpp"
#include "handles.hpp"
#include "streams.hpp"

namespace binding {

void bind_completions_of(nb::class_<PyStream>& stream);
void bind_completions_of(nb::class_<PyEvent>& event);
void bind_completions_of(nb::class_<PyCopy>& copy);
void bind_completions(nb::module_& module);

}  // namespace binding
