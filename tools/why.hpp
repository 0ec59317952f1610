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
  std::string group;  // The group of the file; a number if the group has no name.
  bool permitted;     // This user may read and write it.
};

struct Toolkit {
  std::string folder;
  int version;  // In the runtime's encoding, without the patch version.
};

struct Machine {
  bool on_bus = false;         // The PCI bus has a GPU of this vendor.
  bool driver_loaded = false;  // The kernel module of the driver is loaded.
  std::vector<DeviceFile> files;
  std::vector<Toolkit> toolkits;
  std::string hidden_by;  // The environment variable that may hide devices; "" if none is set.
};

/// Reads the machine's files below `root`, which is "/" except in tests.
[[nodiscard]] Machine look_at_machine(Vendor vendor, const std::filesystem::path& root);

/// One line that explains the problem and how to fix it; "" if no cause was found. The versions are
/// in the encoding of the runtime and the driver, 0 if there is none.
[[nodiscard]] std::string explain(Vendor vendor, const Machine& machine, int runtime_version,
                                  int driver_version);

}  // namespace tool
