// SPDX-License-Identifier: Apache-2.0
/// Partitions of a device are CUDA's green contexts. Only the driver has them: since 12.4, and
/// their streams since 12.5.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "driver_functions.hpp"

namespace runnel::inline RUNNEL_ABI::rt {

/// CUdevResource of 12.4 to 13.0, which the driver's functions of version 12.5 take. (Toolkits
/// before 12.4 do not declare it.)
struct GreenResource {
  int type;  // 1: multiprocessors
  unsigned char padding[92];
  unsigned int count;
  unsigned int least;      // the least number of multiprocessors of a part; since 13.0, 0 before
  unsigned int alignment;  // a part's number is a multiple of this; since 13.0, 0 before
  unsigned char rest[36];
};
static_assert(sizeof(GreenResource) == 144);

/// The driver's functions for partitions.
struct GreenFunctions {
  int (*get_resource)(int device, GreenResource*, int type) = nullptr;
  int (*split)(GreenResource* groups, unsigned int* count, const GreenResource* input,
               GreenResource* remaining, unsigned int flags, unsigned int least) = nullptr;
  int (*describe)(void** description, GreenResource*, unsigned int count) = nullptr;
  int (*create)(void** context, void* description, int device, unsigned int flags) = nullptr;
  int (*create_stream)(cudaStream_t*, void* context, unsigned int flags, int priority) = nullptr;

  [[nodiscard]] bool are_there() const noexcept {
    return get_resource != nullptr && split != nullptr && describe != nullptr &&
           create != nullptr && create_stream != nullptr;
  }
};

inline cudaError_t find_green_functions(GreenFunctions& found) noexcept {
  constexpr unsigned int version = 12050;
  cudaError_t e = find_in_driver(found.get_resource, "cuDeviceGetDevResource", version);
  if (e == cudaSuccess) e = find_in_driver(found.split, "cuDevSmResourceSplitByCount", version);
  if (e == cudaSuccess) e = find_in_driver(found.describe, "cuDevResourceGenerateDesc", version);
  if (e == cudaSuccess) e = find_in_driver(found.create, "cuGreenCtxCreate", version);
  if (e == cudaSuccess) e = find_in_driver(found.create_stream, "cuGreenCtxStreamCreate", version);
  return e == cudaSuccess && !found.are_there() ? cudaErrorNotSupported : e;
}

inline cudaError_t cuda_can_divide_devices(int* can) noexcept {
  GreenFunctions functions;
  const cudaError_t e = find_green_functions(functions);
  *can = e == cudaSuccess ? 1 : 0;
  return e == cudaErrorNotSupported ? cudaSuccess : e;
}

/// The device's multiprocessors, in the smallest groups that it can separate. `rest` has those that
/// are in no group.
struct GreenGroups {
  std::unique_ptr<GreenResource[]> list;  // with room for `rest` after the groups
  unsigned int count = 0;
  unsigned int size = 0;  // of each group
  GreenResource rest{};
};

inline cudaError_t split_device(const GreenFunctions& driver, int device,
                                GreenGroups& groups) noexcept {
  GreenResource all{};
  int result = driver.get_resource(device, &all, 1);
  if (result != 0) return static_cast<cudaError_t>(result);
  groups.size = std::max({all.least, all.alignment, 1U});  // 1: the driver rounds up
  if (groups.size > all.count) return cudaErrorNotSupported;
  groups.count = all.count / groups.size;
  groups.list.reset(new (std::nothrow) GreenResource[groups.count + 1]);
  if (groups.list == nullptr) return cudaErrorMemoryAllocation;
  result = driver.split(groups.list.get(), &groups.count, &all, &groups.rest, 0, groups.size);
  if (result == 0 && groups.count > 0) groups.size = groups.list[0].count;
  return static_cast<cudaError_t>(result);
}

inline cudaError_t make_green_context(const GreenFunctions& driver, int device,
                                      GreenResource* groups, unsigned int count, int* granted,
                                      void** context) noexcept {
  *granted = 0;
  for (unsigned int i = 0; i < count; ++i) *granted += static_cast<int>(groups[i].count);
  void* description = nullptr;
  constexpr unsigned int with_default_stream = 1;  // the driver requires it
  int result = driver.describe(&description, groups, count);
  if (result == 0) result = driver.create(context, description, device, with_default_stream);
  return static_cast<cudaError_t>(result);
}

/// If a context fails, those before it leak: a context may be destroyed only without streams, and a
/// later call creates new ones.
inline cudaError_t cuda_device_divide(int device, const int* wanted, std::size_t count,
                                      int* granted, void** parts) noexcept {
  GreenFunctions driver;
  cudaError_t e = find_green_functions(driver);
  if (e == cudaSuccess) e = cudaSetDevice(device);  // Driver functions need a context.
  GreenGroups groups;
  if (e == cudaSuccess) e = split_device(driver, device, groups);
  unsigned int used = 0;
  for (std::size_t i = 0; i < count && e == cudaSuccess; ++i) {
    const unsigned int needed =
        (static_cast<unsigned int>(wanted[i]) + groups.size - 1) / groups.size;
    if (needed > groups.count - used) return cudaErrorInvalidValue;
    e = make_green_context(driver, device, groups.list.get() + used, needed, &granted[i],
                           &parts[i]);
    used += needed;
  }
  if (e != cudaSuccess) return e;
  unsigned int left = groups.count - used;
  if (groups.rest.type == 1 && groups.rest.count > 0) groups.list[used + left++] = groups.rest;
  if (left == 0) return cudaErrorInvalidValue;
  return make_green_context(driver, device, groups.list.get() + used, left, &granted[count],
                            &parts[count]);
}

inline cudaError_t cuda_stream_create_in(cudaStream_t* stream, void* part, int priority) noexcept {
  GreenFunctions driver;
  const cudaError_t e = find_green_functions(driver);
  return e != cudaSuccess ? e
                          : static_cast<cudaError_t>(driver.create_stream(
                                stream, part, cudaStreamNonBlocking, priority));
}

}  // namespace runnel::inline RUNNEL_ABI::rt
