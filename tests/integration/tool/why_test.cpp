// SPDX-License-Identifier: Apache-2.0
// What `runnel info --why` says about other machines. Each machine is a folder with the files that
// `why` looks at.
#include "../../../tools/why.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace {

namespace fs = std::filesystem;
using tool::Vendor;

class Why : public testing::Test {
 protected:
  Why() {
    char name[] = "/tmp/runnel-why-XXXXXX";
    root = mkdtemp(name);
    fs::permissions(root, fs::perms{0755});
    for (const char* variable :
         {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
      unsetenv(variable);
  }
  ~Why() override { fs::remove_all(root); }

  void file(const std::string& path, const std::string& text = "",
            fs::perms mode = fs::perms{0666}) {
    fs::create_directories((root / path).parent_path());
    std::ofstream{root / path} << text;
    fs::permissions(root / path, mode);
  }
  void gpu(const char* vendor) {
    file("sys/bus/pci/devices/0000:01:00.0/vendor", std::string{vendor} + "\n");
    file("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  }
  void whole(Vendor vendor) {
    gpu(vendor == Vendor::nvidia ? "0x10de" : "0x1002");
    for (const char* path :
         vendor == Vendor::nvidia
             ? std::vector{"proc/driver/nvidia/version", "dev/nvidiactl", "dev/nvidia0"}
             : std::vector{"sys/module/amdgpu/x", "dev/kfd", "dev/dri/renderD128"})
      file(path);
  }
  std::string line(Vendor vendor, int runtime = 13000, int driver = 13000) {
    return tool::explain(vendor, tool::look_at_machine(vendor, root), runtime, driver);
  }
  /// The line as a user without privileges sees it, because root may open every file.
  std::string line_for_a_user(Vendor vendor, int runtime, int driver) {
    const uid_t found = geteuid();
    if (found == 0) {
      EXPECT_EQ(seteuid(65534), 0);
    }
    std::string text = line(vendor, runtime, driver);
    EXPECT_EQ(seteuid(found), 0);
    return text;
  }
  void expect_line(const std::string& line, std::initializer_list<const char*> words) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    for (const char* word : words)
      EXPECT_NE(line.find(word), std::string::npos) << "no '" << word << "' in: " << line;
  }

  fs::path root;
};

TEST_F(Why, NoGpu) {
  expect_line(line(Vendor::nvidia, 13000, 0),
              {"no NVIDIA GPU", "-Dgpu_backend=host", "--gpus all"});
  expect_line(line(Vendor::amd, 50200000, 0), {"no AMD GPU", "/dev/kfd"});
}
TEST_F(Why, OtherVendorsGpu) {
  gpu("0x1002");
  expect_line(line(Vendor::nvidia, 13000, 0), {"no NVIDIA GPU"});
}
TEST_F(Why, SoundCardIsNoGpu) {
  file("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
  file("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
  expect_line(line(Vendor::nvidia, 13000, 0), {"no NVIDIA GPU"});
}
TEST_F(Why, ToolkitWithoutDriver) {
  gpu("0x10de");
  expect_line(line(Vendor::nvidia, 13000, 0),
              {"driver is not loaded", "nvidia-driver", "modprobe nvidia"});
  fs::remove_all(root / "sys");
  gpu("0x1002");
  expect_line(line(Vendor::amd, 50200000, 0), {"driver is not loaded", "modprobe amdgpu"});
}
TEST_F(Why, NoDevicePermission) {
  whole(Vendor::nvidia);
  fs::permissions(root / "dev/nvidia0", fs::perms{0});
  expect_line(line_for_a_user(Vendor::nvidia, 13000, 0),
              {"may not open /dev/nvidia0", "usermod -aG ", "log in again"});
}
TEST_F(Why, RocmWithoutTheRenderGroup) {
  whole(Vendor::amd);
  fs::permissions(root / "dev/kfd", fs::perms{0});
  expect_line(line_for_a_user(Vendor::amd, 50200000, 50200000),
              {"may not open /dev/kfd", "usermod -aG ", "log in again"});
}
TEST_F(Why, ContainerWithoutDeviceFiles) {
  file("proc/driver/nvidia/version");
  expect_line(line(Vendor::nvidia), {"/dev/nvidiactl is not here", "--gpus all"});
}
TEST_F(Why, DriversLibraryMissing) {
  whole(Vendor::nvidia);
  expect_line(line(Vendor::nvidia, 13000, 0), {"libcuda.so.1", "libcuda1"});
}
TEST_F(Why, DriverOlderThanToolkit) {
  whole(Vendor::nvidia);
  expect_line(line(Vendor::nvidia, 13000, 12020),
              {"driver is for CUDA 12.2", "built with 13.0", "newer driver", "an older CUDA"});
  whole(Vendor::amd);
  expect_line(line(Vendor::amd, 60400000, 50200000), {"driver is for ROCm 5.2", "built with 6.4"});
}
TEST_F(Why, TwoToolkits) {
  whole(Vendor::nvidia);
  for (const char* path :
       {"usr/local/cuda-13.0/x", "usr/local/cuda-12.1/x", "usr/local/cuda-broken/x"})
    file(path);
  expect_line(line(Vendor::nvidia, 13000, 12020),
              {"CUDA_PATH=/usr/local/cuda-12.1, which is here too"});
}
TEST_F(Why, HiddenDevices) {
  whole(Vendor::nvidia);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  expect_line(line(Vendor::nvidia), {"CUDA_VISIBLE_DEVICES is set", "unset it"});
  whole(Vendor::amd);
  setenv("HIP_VISIBLE_DEVICES", "-1", 1);
  expect_line(line(Vendor::amd, 50200000, 50200000), {"HIP_VISIBLE_DEVICES is set"});
}
TEST_F(Why, NothingExplainsIt) {
  whole(Vendor::nvidia);
  EXPECT_EQ(line(Vendor::nvidia), "");
}

}  // namespace
