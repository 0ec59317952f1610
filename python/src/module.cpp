// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"
#include "blocks.hpp"
#include "completions.hpp"
#include "copies.hpp"
#include "current.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "events.hpp"
#include "handles.hpp"
#include "overlap.hpp"
#include "references.hpp"
#include "streams.hpp"

#include <runnel/config.hpp>

constexpr std::string_view binding::backend = RUNNEL_MODULE_BACKEND;

// The module as nanobind makes it, which must not begin in a second interpreter: nanobind has one
// set of types for each process, and would give it to that one.
NB_MODULE(runnel_module, module) {
  binding::set_interpreter();
  nb::set_leak_warnings(false);  // what the library's threads still hold when the process ends
  module.attr("backend") = RUNNEL_MODULE_BACKEND;
  module.attr("version") = RUNNEL_VERSION;
  binding::bind_errors(module);
  binding::bind_devices(module);
  binding::bind_streams(module);
  binding::bind_events(module);
  binding::bind_current(module);
  binding::bind_blocks(module);
  binding::bind_handles(module);
  binding::bind_copies(module);
  binding::bind_overlap(module);
  binding::bind_completions(module);
}

#define RUNNEL_JOIN(a, b) a##b
#define RUNNEL_INIT(name) RUNNEL_JOIN(PyInit_, name)
extern "C" NB_EXPORT PyObject* RUNNEL_INIT(RUNNEL_MODULE)() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return PyInit_runnel_module();
  PyErr_SetString(
      PyExc_ImportError,
      "runnel works in the main interpreter only: its threads call Python functions there");
  return nullptr;
}
