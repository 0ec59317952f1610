// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"

#include "arguments.hpp"
#include "backend.hpp"
#include "waits.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>

namespace binding {
namespace {

template <auto question>
[[nodiscard]] auto asked(runnel::Device device) {
  return unlocked([device] { return (device.*question)(); });
}
[[nodiscard]] nb::tuple priority_range(runnel::Device device) {
  const runnel::PriorityRange range = asked<&runnel::Device::priority_range>(device);
  return nb::make_tuple(range.least.value, range.greatest.value);
}

void bind_questions(nb::class_<runnel::Device>& device) {
  device.def_prop_ro("name", &asked<&runnel::Device::name>, "The vendor's name.")
      .def_prop_ro("uuid", &asked<&runnel::Device::uuid>, "A name that no other device has.")
      .def_prop_ro("pci_bus_id", &asked<&runnel::Device::pci_bus_id>,
                   "Its place on the bus, as ``'0000:01:00.0'``; empty on the host backend.")
      .def_prop_ro(
          "compute_capability",
          [](runnel::Device d) {
            const auto found = asked<&runnel::Device::compute_capability>(d);
            return nb::make_tuple(found.major, found.minor);
          },
          nb::sig("def compute_capability(self) -> tuple[int, int]"),
          "The vendor's number, as ``(9, 0)``.")
      .def_prop_ro("priority_range", &priority_range,
                   nb::sig("def priority_range(self) -> tuple[int, int]"),
                   "``(least, greatest)``: the numbers of the least and of the most urgent "
                   "streams, as torch's\n"
                   "``priority_range()``.")
      .def_prop_ro("async_engine_count", &asked<&runnel::Device::async_engine_count>,
                   "Copy engines: 2 copy in both directions at once.")
      .def_prop_ro("multiprocessor_count", &asked<&runnel::Device::multiprocessor_count>,
                   "Multiprocessors; on the host backend the machine's processors.");
}

void bind_device(nb::module_& module) {
  auto device =
      nb::class_<runnel::Device>(module, "Device", nb::is_weak_referenceable(),
                                 "A device, by its number. Making one asks the runtime nothing.");
  device
      .def(
          "__init__",
          [](runnel::Device* at, nb::handle index) { new (at) runnel::Device{device_of(index)}; },
          nb::arg("index").none() = 0, nb::sig("def __init__(self, index: int = 0) -> None"))
      .def_prop_ro("index", &runnel::Device::ordinal, "Its number, counted from 0.")
      .def(
          "memory_info",
          [](runnel::Device d) {
            const auto info = asked<&runnel::Device::memory_info>(d);
            return nb::make_tuple(info.free, info.total);
          },
          nb::sig("def memory_info(self) -> tuple[int, int]"), "Free and total memory, in bytes.")
      .def(
          "synchronize",
          [](runnel::Device d, Seconds timeout) {
            wait_in_slices(timeout.of("timeout"), "the device still works",
                           [d](auto time) { return d.synchronize_for(time); });
          },
          nb::arg("timeout") = nb::none(),
          "Waits for all work of the device, on all streams, at most ``timeout`` seconds. Raises\n"
          "TimeoutError, and what failed.")
      .def(
          "can_access_peer",
          [](runnel::Device d, nb::handle other) {
            const runnel::Device peer = device_of(other);
            return unlocked([&] { return d.can_access_peer(peer); });
          },
          nb::arg("peer").none(),
          nb::sig("def can_access_peer(self, peer: Device | int | str) -> bool"),
          "Whether this device reaches the other's memory directly.")
      .def("__int__", &runnel::Device::ordinal)
      .def("__index__", &runnel::Device::ordinal)
      .def(
          "__eq__",
          [](runnel::Device a, nb::handle b) {
            return nb::isinstance<runnel::Device>(b) && a == nb::cast<runnel::Device>(b);
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__", [](runnel::Device d) { return static_cast<std::ptrdiff_t>(d.ordinal()); })
      .def("__repr__",
           [](runnel::Device d) { return "runnel.Device(" + std::to_string(d.ordinal()) + ")"; });
  bind_questions(device);
}

}  // namespace

namespace {
/// The number in "cuda:1", as torch's users write it, also for a program that runs on the host
/// backend. @throws ValueError
[[nodiscard]] runnel::Device device_of_text(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon),
                         number = text.substr(std::min(colon + 1, text.size()));
  if (kind == "cuda" || kind == "hip" || kind == "host") {
    if (colon == text.size()) return unlocked([] { return runnel::Device::current(); });
    int ordinal = -1;
    const char* const last = number.data() + number.size();
    const auto [end, failure] = std::from_chars(number.data(), last, ordinal);
    if (end == last && failure == std::errc{} && ordinal >= 0) return runnel::Device{ordinal};
  }
  refuse_value("a device's name is 'cuda' (the current one), 'cuda:1', 'hip:0' or 'host'");
}
}  // namespace

runnel::Device device_of(nb::handle device) {
  if (device.is_none()) return runnel::Device{0};
  if (PyUnicode_Check(device.ptr()) != 0) return device_of_text(nb::cast<std::string>(device));
  if (nb::isinstance<runnel::Device>(device)) return nb::cast<runnel::Device>(device);
  nb::object number = nb::borrow(device);
  if (PyIndex_Check(device.ptr()) == 0) {
    const nb::object kind = nb::getattr(device, "type", nb::none());  // torch.device
    if (PyUnicode_Check(kind.ptr()) != 0) {
      const nb::object index = nb::getattr(device, "index", nb::none());
      auto text = nb::cast<std::string>(kind);
      if (text == "cpu" && is_on_host()) text = "host";
      return device_of_text(index.is_none() ? text
                                            : text + ":" + nb::cast<std::string>(nb::str(index)));
    }
    number = nb::getattr(device, "id", nb::none());  // cupy.cuda.Device
  }
  if (number.is_none() || PyIndex_Check(number.ptr()) == 0) {
    refuse(PyExc_TypeError,
           "%R is no device: write runnel.Device(0), a number, or None for device 0", device.ptr());
  }
  const Py_ssize_t ordinal = index_of(number, PyExc_OverflowError);
  constexpr Py_ssize_t most =
      std::numeric_limits<int>::max();  // no device has such a number, which the error then names
  return runnel::Device{static_cast<int>(std::clamp(ordinal, -most, most))};
}

void bind_devices(nb::module_& module) {
  bind_device(module);
  module.def(
      "device_count", [] { return unlocked([] { return runnel::Device::count(); }); },
      "The number of devices; 0 if there is none or no driver.");
  module.def(
      "why_no_device", [] { return unlocked([] { return runnel::Device::why_no_device(); }); },
      "Why ``device_count()`` is 0 and what to do about it, in one line; ``''`` if there is a "
      "device.");
  module.def(
      "runtime_version",
      [] {
        const runnel::RuntimeVersion found = unlocked([] { return runnel::runtime_version(); });
        return nb::make_tuple(found.runtime, found.driver);
      },
      nb::sig("def runtime_version() -> tuple[int, int]"),
      "The numbers of the runtime and of the driver, as ``(13000, 13000)``; 0: none.");
}

}  // namespace binding
