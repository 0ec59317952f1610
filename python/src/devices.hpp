// SPDX-License-Identifier: Apache-2.0
// Devices as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <runnel/device.hpp>

namespace nb = nanobind;

namespace binding {

/// The device that an argument means: None (device 0), a number, a Device, or a device of torch or
/// CuPy. @throws TypeError
[[nodiscard]] runnel::Device device_of(nb::handle device);
void bind_devices(nb::module_& module);

}  // namespace binding
