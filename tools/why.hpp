// SPDX-License-Identifier: Apache-2.0
/// `runnel info --why`: explains from the machine's files why a runtime sees no GPU.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tool {

enum class Vendor { nvidia, amd };

/// A device file that a runtime opens.
struct DeviceFile {
  std::string path;
  std::string group;  // the group of the file; a number if the group has no name
  bool permitted;     // this user may read and write it
};

struct Toolkit {
  std::string folder;
  int version;  // in the runtime's encoding, without the patch version
};

struct Machine {
  bool on_bus = false;         // the PCI bus has a GPU of this vendor
  bool driver_loaded = false;  // the kernel module of the driver is loaded
  std::vector<DeviceFile> files;
  std::vector<Toolkit> toolkits;
  std::string hidden_by;  // the environment variable that may hide devices; "" if none is set
};

/// Reads the machine's files below `root`, which is "/" except in tests.
[[nodiscard]] Machine look_at_machine(Vendor vendor, const std::filesystem::path& root);

/// One line that says what is wrong and what to do; "" if nothing explains it. The versions are in
/// the encoding of the runtime and the driver, 0 if there is none.
[[nodiscard]] std::string explain(Vendor vendor, const Machine& machine, int runtime_version,
                                  int driver_version);

}  // namespace tool
