// SPDX-License-Identifier: Apache-2.0
// overlap() with Python's arrays and functions. runnel/_overlap.py has what users call.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace binding {
void bind_overlap(nb::module_& module);
}  // namespace binding
