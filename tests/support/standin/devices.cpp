// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "calls.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

bool reachable(int device, int peer) { return settings().peers && device != peer; }

void write_uuid(char (&bytes)[16], int device) {
  for (int i : range(16)) bytes[i] = static_cast<char>(0xF0 - 16 * i + device);
}

// Each attribute that runnel queries, with its value. Other attributes are refused.
int attribute(int& value, vendor::Attribute which) {
  const Settings& s = settings();
  const std::pair<int, int> values[] = {
#ifdef STANDIN_CUDA
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrAsyncEngineCount, 2},
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrHostRegisterReadOnlySupported, s.read_only_registrations},
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrPageableMemoryAccessUsesHostPageTables, 0},
      {122, s.memory_operations},
      {cudaDevAttrMemoryPoolsSupported, s.pools},
#else
      // Without the number of copy engines: HIP 5 refuses this attribute on AMD.
      {hipDeviceAttributeComputeCapabilityMajor, 9},
      {hipDeviceAttributeComputeCapabilityMinor, 4},
      {hipDeviceAttributeMultiprocessorCount, 110},
      {hipDeviceAttributeCanMapHostMemory, 1},
      {hipDeviceAttributePageableMemoryAccess, 0},
      {hipDeviceAttributePageableMemoryAccessUsesHostPageTables, 0},
      {hipDeviceAttributeCanUseStreamWaitValue, s.memory_operations},
      {hipDeviceAttributeMemoryPoolsSupported, s.pools},
#endif
  };
  for (const auto& [known, its_value] : values)
    if (known == static_cast<int>(which)) return value = its_value, ok;
  return invalid_value;
}

}  // namespace

extern "C" {

Error API(GetDeviceCount)(int* count) {
  return call(Call::anywhere, [&] {
    if (settings().devices == 0) return no_device;  // leaves the output unchanged
    *count = settings().devices;
    return ok;
  });
}

Error API(GetDevice)(int* device) {
  return call([&] {
    *device = this_thread().device;
    return ok;
  });
}

Error API(SetDevice)(int device) {
  return call([&] {
    if (!exists(device)) return invalid_device;
    this_thread().device = device;
    this_thread().has_context = true;
    return ok;
  });
}

Error API(DeviceGetAttribute)(int* value, vendor::Attribute which, int device) {
  return call([&] { return exists(device) ? attribute(*value, which) : invalid_device; });
}

Error API(DeviceGetPCIBusId)(char* text, int size, int device) {
  return call([&] {
    if (!exists(device)) return invalid_device;
    if (text == nullptr || size < 13) return invalid_value;
    std::snprintf(text, static_cast<size_t>(size), "0000:%02X:00.0", 0xA0 + device);
    return ok;
  });
}

Error API(GetDeviceFlags)(unsigned int* flags) {
  return call([&] {
    *flags = state().device_flags[this_thread().device];
    return ok;
  });
}

Error API(SetDeviceFlags)(unsigned int flags) {
  return call([&] {
    const unsigned int wait = flags & 7U;  // at most one of spin, yield and block
    if ((wait & (wait - 1)) != 0) return invalid_value;
    state().device_flags[this_thread().device] = flags;
    return ok;
  });
}

Error API(DeviceGetStreamPriorityRange)(int* least, int* greatest) {
  return call([&] {
    *least = settings().least_priority;
    *greatest = settings().greatest_priority;
    return ok;
  });
}

Error API(DeviceSynchronize)() {
  return call([](Lock& lock) {
    // other devices than these can be waited for: seen on two H100, driver 580
    for (const CapturePtr& capture : state().captures)
      if (!capture->ended && capture->devices.contains(this_thread().device))
        return break_capture(*capture, capture_unsupported);
    engine().wait_for_device(lock, this_thread().device);
    state().trim_pools();
    return ok;
  });
}

Error API(MemGetInfo)(size_t* free, size_t* total) {
  return call([&] {
    *total = settings().memory;
    *free =
        *total -
        std::min(*total,
                 // the used bytes can exceed the total, if allocations reuse pending frees
                 state().blocks.used(this_thread().device) + state().unused(this_thread().device));
    return ok;
  });
}

Error API(DeviceCanAccessPeer)(int* can, int device, int peer) {
  return call([&] {
    if (!exists(device) || !exists(peer)) return invalid_device;
    *can = reachable(device, peer) ? 1 : 0;
    return ok;
  });
}

Error API(DeviceEnablePeerAccess)(int peer, unsigned int flags) {
  return call([&] {
    const int device = this_thread().device;
    if (flags != 0) return invalid_value;
    if (!exists(peer) || peer == device) return invalid_device;
    if (!reachable(device, peer)) return peer_access_unsupported;
    return state().peers.emplace(device, peer).second ? ok : peer_access_already_enabled;
  });
}

Error API(DeviceDisablePeerAccess)(int peer) {
  return call([&] {
    if (!exists(peer)) return invalid_device;
    return state().peers.erase({this_thread().device, peer}) != 0 ? ok : peer_access_not_enabled;
  });
}

Error API(RuntimeGetVersion)(int* version) {
  return call(Call::anywhere, [&] {
    *version = vendor::version;
    return ok;
  });
}

Error API(DriverGetVersion)(int* version) {
  return call(Call::anywhere, [&] {
    *version = settings().devices == 0 ? 0 : vendor::version;
    return ok;
  });
}

#ifdef STANDIN_CUDA
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&] {
    if (!exists(device)) return invalid_device;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Stand-in %d", device);
    properties->multiProcessorCount = 132;
    write_uuid(properties->uuid.bytes, device);
    properties->totalGlobalMem = settings().memory;
    return ok;
  });
}
#else
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  return call([&] {
    if (!exists(device)) return invalid_device;
    write_uuid(uuid->bytes, device);
    return ok;
  });
}

hipError_t hipDeviceGetName(char* name, int size, hipDevice_t device) {
  return call([&] {
    if (!exists(device)) return invalid_device;
    if (name == nullptr || size <= 0) return invalid_value;
    std::snprintf(name, static_cast<size_t>(size), "Stand-in %d", device);
    return ok;
  });
}
#endif

}  // extern "C"
