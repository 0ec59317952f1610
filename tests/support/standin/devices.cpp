// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "calls.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

bool exists(int device) { return 0 <= device && device < settings().devices; }

bool reachable(int device, int peer) { return settings().peers && device != peer; }

void write_uuid(char (&bytes)[16], int device) {
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<char>(0xF0 - 16 * i + device);
}

// The value of each attribute that runnel queries. Other attributes are refused.
int attribute(int& value, vendor::Attribute which) {
  switch (static_cast<int>(which)) {
#ifdef STANDIN_CUDA
    case cudaDevAttrComputeCapabilityMajor:
      value = 9;
      return vendor::ok;
    case cudaDevAttrComputeCapabilityMinor:
      value = 0;
      return vendor::ok;
    case cudaDevAttrAsyncEngineCount:
      value = 2;
      return vendor::ok;
    case cudaDevAttrMultiProcessorCount:
      value = 132;
      return vendor::ok;
    case cudaDevAttrCanMapHostMemory:
      value = 1;
      return vendor::ok;
    case cudaDevAttrHostRegisterReadOnlySupported:
      value = settings().read_only_registrations ? 1 : 0;
      return vendor::ok;
    case cudaDevAttrPageableMemoryAccess:
      value = 0;
      return vendor::ok;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
      value = 0;
      return vendor::ok;
    case 122:
      value = settings().memory_operations ? 1 : 0;
      return vendor::ok;
    case cudaDevAttrMemoryPoolsSupported:
      value = settings().pools ? 1 : 0;
      return vendor::ok;
#else
    // No case for the number of copy engines: HIP 5 refuses this attribute on AMD.
    case hipDeviceAttributeComputeCapabilityMajor:
      value = 9;
      return vendor::ok;
    case hipDeviceAttributeComputeCapabilityMinor:
      value = 4;
      return vendor::ok;
    case hipDeviceAttributeMultiprocessorCount:
      value = 110;
      return vendor::ok;
    case hipDeviceAttributeCanMapHostMemory:
      value = 1;
      return vendor::ok;
    case hipDeviceAttributePageableMemoryAccess:
      value = 0;
      return vendor::ok;
    case hipDeviceAttributePageableMemoryAccessUsesHostPageTables:
      value = 0;
      return vendor::ok;
    case hipDeviceAttributeCanUseStreamWaitValue:
      value = settings().memory_operations ? 1 : 0;
      return vendor::ok;
    case hipDeviceAttributeMemoryPoolsSupported:
      value = settings().pools ? 1 : 0;
      return vendor::ok;
#endif
    default:
      return vendor::invalid_value;
  }
}

}  // namespace

extern "C" {

vendor::Error API(GetDeviceCount)(int* count) {
  return call(Call::anywhere, [&](Lock&) {
    if (settings().devices == 0) return vendor::no_device;  // leaves the output unchanged
    *count = settings().devices;
    return vendor::ok;
  });
}

vendor::Error API(GetDevice)(int* device) {
  return call([&](Lock&) {
    *device = this_thread().device;
    return vendor::ok;
  });
}

vendor::Error API(SetDevice)(int device) {
  return call([&](Lock&) {
    if (!exists(device)) return vendor::invalid_device;
    this_thread().device = device;
    this_thread().has_context = true;
    return vendor::ok;
  });
}

vendor::Error API(DeviceGetAttribute)(int* value, vendor::Attribute which, int device) {
  return call([&](Lock&) -> int {
    return exists(device) ? attribute(*value, which) : vendor::invalid_device;
  });
}

vendor::Error API(DeviceGetPCIBusId)(char* text, int size, int device) {
  return call([&](Lock&) {
    if (!exists(device)) return vendor::invalid_device;
    if (text == nullptr || size < 13) return vendor::invalid_value;
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0", 0xA0 + device);
    return vendor::ok;
  });
}

vendor::Error API(GetDeviceFlags)(unsigned int* flags) {
  return call([&](Lock&) {
    *flags = state().device_flags[this_thread().device];
    return vendor::ok;
  });
}

vendor::Error API(SetDeviceFlags)(unsigned int flags) {
  return call([&](Lock&) {
    const unsigned int wait = flags & 7U;  // at most one of spin, yield and block
    if ((wait & (wait - 1)) != 0) return vendor::invalid_value;
    state().device_flags[this_thread().device] = flags;
    return vendor::ok;
  });
}

vendor::Error API(DeviceGetStreamPriorityRange)(int* least, int* greatest) {
  return call([&](Lock&) {
    *least = settings().least_priority;
    *greatest = settings().greatest_priority;
    return vendor::ok;
  });
}

vendor::Error API(DeviceSynchronize)() {
  return call([](Lock& lock) {
    // other devices than these can be waited for: seen on two H100, driver 580
    for (const CapturePtr& capture : state().captures)
      if (!capture->ended && capture->devices.contains(this_thread().device))
        return break_capture(*capture, vendor::capture_unsupported);
    engine().wait_for_device(lock, this_thread().device);
    return vendor::ok;
  });
}

vendor::Error API(MemGetInfo)(std::size_t* free, std::size_t* total) {
  return call([&](Lock&) {
    *total = settings().memory;
    *free =
        *total - std::min(*total,
                          // the used bytes can exceed the total, if allocations reuse pending frees
                          state().blocks.used(this_thread().device));
    return vendor::ok;
  });
}

vendor::Error API(DeviceCanAccessPeer)(int* can, int device, int peer) {
  return call([&](Lock&) {
    if (!exists(device) || !exists(peer)) return vendor::invalid_device;
    *can = reachable(device, peer) ? 1 : 0;
    return vendor::ok;
  });
}

vendor::Error API(DeviceEnablePeerAccess)(int peer, unsigned int flags) {
  return call([&](Lock&) {
    const int device = this_thread().device;
    if (flags != 0) return vendor::invalid_value;
    if (!exists(peer) || peer == device) return vendor::invalid_device;
    if (!reachable(device, peer)) return vendor::peer_access_unsupported;
    return state().peers.emplace(device, peer).second ? vendor::ok
                                                      : vendor::peer_access_already_enabled;
  });
}

vendor::Error API(DeviceDisablePeerAccess)(int peer) {
  return call([&](Lock&) {
    if (!exists(peer)) return vendor::invalid_device;
    return state().peers.erase({this_thread().device, peer}) != 0 ? vendor::ok
                                                                  : vendor::peer_access_not_enabled;
  });
}

vendor::Error API(RuntimeGetVersion)(int* version) {
  return call(Call::anywhere, [&](Lock&) {
#ifdef STANDIN_CUDA
    *version = CUDART_VERSION;
#else
    *version = HIP_VERSION;
#endif
    return vendor::ok;
  });
}

vendor::Error API(DriverGetVersion)(int* version) {
  return call(Call::anywhere, [&](Lock&) {
#ifdef STANDIN_CUDA
    *version = settings().devices == 0 ? 0 : CUDART_VERSION;
#else
    *version = settings().devices == 0 ? 0 : HIP_VERSION;
#endif
    return vendor::ok;
  });
}

#ifdef STANDIN_CUDA
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Lock&) {
    if (!exists(device)) return vendor::invalid_device;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Stand-in %d", device);
    properties->multiProcessorCount = 132;
    write_uuid(properties->uuid.bytes, device);
    properties->totalGlobalMem = settings().memory;
    return vendor::ok;
  });
}
#else
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  return call([&](Lock&) {
    if (!exists(device)) return vendor::invalid_device;
    write_uuid(uuid->bytes, device);
    return vendor::ok;
  });
}

hipError_t hipDeviceGetName(char* name, int size, hipDevice_t device) {
  return call([&](Lock&) {
    if (!exists(device)) return vendor::invalid_device;
    if (name == nullptr || size <= 0) return vendor::invalid_value;
    std::snprintf(name, static_cast<std::size_t>(size), "Stand-in %d", device);
    return vendor::ok;
  });
}
#endif

}  // extern "C"
