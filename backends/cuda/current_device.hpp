// SPDX-License-Identifier: Apache-2.0
/// The current device, derived from the driver's current context. This is many times faster than
/// the runtime's query.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>

#include "driver_functions.hpp"

namespace runnel::inline RUNNEL_ABI::rt {

/// The primary contexts of the devices; cudaSetDevice makes one of them current. A primary context
/// keeps its handle for the life of the process. Contexts that a program creates are not stored,
/// because their handles may be reused for other devices.
class PrimaryContexts {
 public:
  /// The device whose primary context is current on the calling thread; -1 if unknown.
  [[nodiscard]] int device() const noexcept {
    CurrentContext* const get_current = get_current_.load(std::memory_order_acquire);
    void* context = nullptr;
    if (get_current == nullptr || get_current(&context) != cudaSuccess || context == nullptr)
      return -1;
    for (std::size_t device = 0; device < contexts_.size(); ++device)
      if (contexts_[device].load(std::memory_order_relaxed) == context)
        return static_cast<int>(device);
    return -1;
  }

  /// Stores the current context if it is the primary context of `device`. Requires: the runtime has
  /// reported `device` as current.
  void store(int device) noexcept {
    if (static_cast<std::size_t>(device) >= contexts_.size()) return;
    std::atomic<void*>& stored = contexts_[static_cast<std::size_t>(device)];
    if (stored.load(std::memory_order_relaxed) != nullptr) return;
    CurrentContext* get_current = get_current_.load(std::memory_order_acquire);
    if (get_current == nullptr && !has_in_driver(get_current, "cuCtxGetCurrent")) return;
    get_current_.store(get_current, std::memory_order_release);
    void* context = nullptr;
    if (get_current(&context) != cudaSuccess || context == nullptr) return;
    if (other_contexts_.load(std::memory_order_relaxed) >= max_other_contexts) return;
    int (*state)(int device, unsigned int* flags, int* active) = nullptr;
    int (*retain)(void** context, int device) = nullptr;
    int (*release)(int device) = nullptr;
    if (!has_in_driver(state, "cuDevicePrimaryCtxGetState") ||
        !has_in_driver(retain, "cuDevicePrimaryCtxRetain") ||
        !has_in_driver(release, "cuDevicePrimaryCtxRelease"))
      return;
    // Retaining an inactive primary context would create it.
    void* primary = nullptr;
    unsigned int flags = 0;
    int active = 0;
    if (state(device, &flags, &active) != cudaSuccess) return;
    if (active != 0 && retain(&primary, device) == cudaSuccess) release(device);
    if (primary == context)
      stored.store(context, std::memory_order_relaxed);
    else
      other_contexts_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  using CurrentContext = int(void**);

  // Limits the cost for a program that creates its own contexts.
  static constexpr unsigned max_other_contexts = 100;
  std::atomic<CurrentContext*> get_current_{nullptr};
  std::atomic<unsigned> other_contexts_{0};
  // As many devices as a machine usually has, because device() searches all of them.
  std::array<std::atomic<void*>, 8> contexts_{};
};
inline constinit PrimaryContexts primary_contexts{};

inline cudaError_t cuda_get_device(int* device) noexcept {
  if (const int known = primary_contexts.device(); known >= 0) {
    *device = known;
    return cudaSuccess;
  }
  const cudaError_t e = cudaGetDevice(device);
  if (e == cudaSuccess) primary_contexts.store(*device);
  return e;
}

/// Does nothing if the device is already current. Compares with the driver's state, because other
/// code may have changed the device since a guard began.
inline cudaError_t cuda_set_device(int device) noexcept {
  return device >= 0 && primary_contexts.device() == device ? cudaSuccess : cudaSetDevice(device);
}

}  // namespace runnel::inline RUNNEL_ABI::rt
