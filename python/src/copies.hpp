// SPDX-License-Identifier: Apache-2.0
// Copies and fills.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace binding {
void bind_copies(nb::module_& module);
}  // namespace binding
