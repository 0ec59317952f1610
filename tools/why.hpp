// SPDX-License-Identifier: Apache-2.0
/// `runnel info --why`: what a machine shows of its GPUs, as far as it explains why a runtime sees none.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tool {

enum class Vendor { nvidia, amd };

/// One of the files that a runtime opens.
struct DeviceFile {
  std::string path;
  std::string group;  // who may open it, beside its owner; a number where the group has no name
  bool permitted;     // this user may read and write it
};

struct Toolkit {
  std::string folder;
  int version;  // as the runtime gives it, without the patch
};

struct Machine {
  bool on_bus = false;         // a GPU of this vendor
  bool driver_loaded = false;  // the kernel's side of the driver
  std::vector<DeviceFile> files;
  std::vector<Toolkit> toolkits;
  std::string hidden_by;  // the variable that may hide devices; "" if none is set
};

/// `root` is where the machine's files are: "/".
[[nodiscard]] Machine look_at_machine(Vendor vendor, const std::filesystem::path& root);

/// One line that says what is wrong and what to do; "" where nothing explains it. The versions are the runtime's and the driver's own
/// numbers, 0 where there is none.
[[nodiscard]] std::string explain(Vendor vendor, const Machine& machine, int runtime_version, int driver_version);

}  // namespace tool
