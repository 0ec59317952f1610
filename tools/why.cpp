// SPDX-License-Identifier: Apache-2.0
#include "why.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>

namespace tool {

namespace {

namespace fs = std::filesystem;

/// The names that differ between the vendors.
struct Names {
  const char* vendor;
  const char* bus_number;  // On the PCI bus.
  const char* driver_package;
  const char* driver_module;
  const char* toolkit;
  const char* toolkit_variable;
  const char* container_option;
  std::vector<const char*> loaded;     // One of these files exists if the kernel module is loaded.
  std::vector<const char*> needed;     // Device files that the runtime needs.
  std::vector<const char*> variables;  // Environment variables that hide devices.
};

const Names& names_of(Vendor vendor) {
  static const Names nvidia{"NVIDIA",
                            "0x10de",
                            "nvidia-driver",
                            "nvidia",
                            "CUDA",
                            "CUDA_PATH",
                            "--gpus all",
                            {"proc/driver/nvidia/version", "dev/dxg"},
                            {"dev/nvidiactl", "dev/nvidia0"},
                            {"CUDA_VISIBLE_DEVICES"}};
  static const Names amd{"AMD",
                         "0x1002",
                         "firmware-amd-graphics",
                         "amdgpu",
                         "ROCm",
                         "ROCM_PATH",
                         "--device /dev/kfd --device /dev/dri",
                         {"sys/module/amdgpu", "dev/kfd"},
                         {"dev/kfd", "dev/dri/renderD128"},
                         {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}};
  return vendor == Vendor::nvidia ? nvidia : amd;
}

std::string first_word(const fs::path& path) {
  std::string word;
  std::ifstream{path} >> word;
  return word;
}

/// The entries of the folder whose names begin with `beginning`, sorted; empty if the folder is
/// missing or unreadable.
std::vector<fs::path> entries(const fs::path& folder, std::string_view beginning) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator entry{folder, ignored}, end; !ignored && entry != end;
       entry.increment(ignored))
    if (entry->path().filename().string().starts_with(beginning)) found.push_back(entry->path());
  std::ranges::sort(found);
  return found;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool on_bus(const Names& names, const fs::path& root) {
  return std::ranges::any_of(entries(root / "sys/bus/pci/devices", ""),
                             [&](const fs::path& device) {
                               const std::string kind = first_word(device / "class");
                               // Displays and accelerators only, because the vendors make other
                               // devices too.
                               return first_word(device / "vendor") == names.bus_number &&
                                      (kind.starts_with("0x03") || kind.starts_with("0x12"));
                             });
}

std::string group_of(const fs::path& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return "";
  const group* entry = getgrgid(status.st_gid);
  return entry != nullptr ? entry->gr_name : std::to_string(status.st_gid);
}

/// The version in the runtime's encoding, without the patch version: 12040 for "cuda-12.4",
/// 60200000 for "rocm-6.2.1"; 0 for other names.
int version_of(Vendor vendor, const std::string& name) {
  int major = 0, minor = 0;
  const auto dash = name.find('-');
  if (dash == std::string::npos) return 0;
  const char* end = name.data() + name.size();
  const auto [dot, problem] = std::from_chars(name.data() + dash + 1, end, major);
  if (problem != std::errc{}) return 0;
  if (dot != end && *dot == '.') std::from_chars(dot + 1, end, minor);
  return vendor == Vendor::nvidia ? major * 1000 + minor * 10 : major * 10000000 + minor * 100000;
}

std::string version_text(Vendor vendor, int version) {
  const bool nvidia = vendor == Vendor::nvidia;
  return std::to_string(version / (nvidia ? 1000 : 10000000)) + "." +
         std::to_string(nvidia ? version % 1000 / 10 : version / 100000 % 100);
}

constexpr const char* or_host = ", or build runnel with -Dgpu_backend=host";

}  // namespace

Machine look_at_machine(Vendor vendor, const fs::path& root) {
  const Names& names = names_of(vendor);
  Machine machine;
  machine.on_bus = on_bus(names, root);
  machine.driver_loaded =
      std::ranges::any_of(names.loaded, [&](const char* path) { return is_there(root / path); });
  for (const char* path : names.needed) {
    const fs::path file = root / path;
    if (is_there(file)) {
      const bool permitted = faccessat(AT_FDCWD, file.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
      machine.files.push_back({std::string{"/"}.append(path), group_of(file), permitted});
    }
  }
  for (const fs::path& folder : vendor == Vendor::nvidia ? entries(root / "usr/local", "cuda-")
                                                         : entries(root / "opt", "rocm-"))
    if (const int version = version_of(vendor, folder.filename().string()); version != 0)
      machine.toolkits.push_back(
          {std::string{"/"}.append(folder.lexically_relative(root).string()), version});
  for (const char* variable : names.variables)
    if (machine.hidden_by.empty() && std::getenv(variable) != nullptr) machine.hidden_by = variable;
  return machine;
}

std::string explain(Vendor vendor, const Machine& machine, int runtime_version,
                    int driver_version) {
  const Names& names = names_of(vendor);
  const std::string gpu = std::string{"an "} + names.vendor + " GPU";
  if (!machine.driver_loaded && !machine.on_bus)
    return "this machine shows no " + std::string{names.vendor} +
           " GPU: look at another machine (in a container, start it with " +
           names.container_option + ")" + or_host;
  if (!machine.driver_loaded)
    return gpu + " is here, but its driver is not loaded: install the driver (Debian: " +
           names.driver_package + ") and restart, or try: modprobe " + names.driver_module;
  for (const DeviceFile& file : machine.files)
    if (!file.permitted)
      return "this user may not open " + file.path + ": join its group with: usermod -aG " +
             file.group + " NAME (as root), and log in again";
  if (machine.files.empty())
    return "the driver is loaded, but /" + std::string{names.needed.front()} +
           " is not here: in a container, start it with " + names.container_option +
           "; else restart the driver's service";
  if (vendor == Vendor::nvidia && driver_version == 0)
    return "the driver is loaded, but its library libcuda.so.1 was not found: install the driver's "
           "libraries (Debian: libcuda1; in a "
           "container, start it with " +
           std::string{names.container_option} + ")";
  if (driver_version != 0 && driver_version < runtime_version) {
    std::string text = "the driver is for " + std::string{names.toolkit} + " " +
                       version_text(vendor, driver_version) + ", and runnel was built with " +
                       version_text(vendor, runtime_version) +
                       ": install a newer driver, or build runnel with ";
    const auto fitting = std::ranges::find_if(machine.toolkits, [&](const Toolkit& toolkit) {
      return toolkit.version <= driver_version;
    });
    return text + (fitting != machine.toolkits.end() ? std::string{names.toolkit_variable} + "=" +
                                                           fitting->folder + ", which is here too"
                                                     : "an older " + std::string{names.toolkit});
  }
  if (!machine.hidden_by.empty())
    return machine.hidden_by + " is set, and may hide the devices: unset it";
  return "";
}

}  // namespace tool
