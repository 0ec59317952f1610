// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"
#include "completions.hpp"
#include "copies.hpp"
#include "current.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "events.hpp"
#include "overlap.hpp"
#include "streams.hpp"

#include <runnel/config.hpp>

NB_MODULE(RUNNEL_MODULE, module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(
        PyExc_ImportError,
        "runnel works in the main interpreter only: its threads call Python functions there");
    throw nb::python_error();
  }
  nb::set_leak_warnings(false);  // what the library's threads still hold when the process ends
  module.attr("backend") = RUNNEL_BACKEND;
  module.attr("version") = RUNNEL_VERSION;
  binding::bind_errors(module);
  binding::bind_devices(module);
  binding::bind_streams(module);
  binding::bind_events(module);
  binding::bind_current(module);
  binding::bind_blocks(module);
  binding::bind_copies(module);
  binding::bind_overlap(module);
  binding::bind_completions(module);
}
