// SPDX-License-Identifier: Apache-2.0
/// Partitions of a device are masks of its compute units on AMD.
#pragma once

#include <hip/hip_runtime_api.h>
#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace runnel::inline RUNNEL_ABI::rt {

/// The compute units of a partition, one bit each.
struct Mask {
  std::uint32_t words[32]{};

  void set(int first, int count) noexcept {
    for (int i = first; i < first + count; ++i) words[i / 32] |= 1U << (i % 32);
  }
};

inline hipError_t hip_device_divide(int device, const int* wanted, std::size_t count, int* granted,
                                    void** parts) noexcept {
  int all = 0;
  const hipError_t e = hipDeviceGetAttribute(&all, hipDeviceAttributeMultiprocessorCount, device);
  if (e != hipSuccess) return e;
  const std::unique_ptr<std::unique_ptr<Mask>[]> masks{new (std::nothrow)
                                                           std::unique_ptr<Mask>[count + 1]};
  if (masks == nullptr) return hipErrorOutOfMemory;
  int used = 0;
  for (std::size_t i = 0; i <= count; ++i) {
    granted[i] = i < count ? wanted[i] : all - used;
    if (granted[i] < 1 || granted[i] > all - used || all > static_cast<int>(8 * sizeof(Mask)))
      return hipErrorInvalidValue;
    masks[i].reset(new (std::nothrow) Mask);
    if (masks[i] == nullptr) return hipErrorOutOfMemory;
    masks[i]->set(used, granted[i]);
    used += granted[i];
  }
  for (std::size_t i = 0; i <= count; ++i) parts[i] = masks[i].release();
  return hipSuccess;
}

/// The runtime's call takes no priority and no flags: the stream orders with the default stream.
inline hipError_t hip_stream_create_in(hipStream_t* stream, void* part, int) noexcept {
  const Mask& mask = *static_cast<const Mask*>(part);
  return hipExtStreamCreateWithCUMask(stream, sizeof mask.words / sizeof mask.words[0], mask.words);
}

}  // namespace runnel::inline RUNNEL_ABI::rt
