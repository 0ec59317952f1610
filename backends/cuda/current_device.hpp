// SPDX-License-Identifier: Apache-2.0
/// The current device by the driver's current context, which is many times as quick as asking the
/// runtime.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>

#include "driver_functions.hpp"

namespace runnel::inline RUNNEL_ABI::rt {

/// The primary contexts of the devices, one of which is current after cudaSetDevice. A primary
/// context keeps its handle as long as the process lives. The handle of a context that a program
/// makes may later be that of another device's, so those are not noted.
class PrimaryContexts {
 public:
  /// The device whose primary context is the calling thread's current context; -1 if that is not
  /// known.
  [[nodiscard]] int device() const noexcept {
    CurrentContext* const ask = ask_.load(std::memory_order_acquire);
    void* context = nullptr;
    if (ask == nullptr || ask(&context) != cudaSuccess || context == nullptr) return -1;
    for (std::size_t device = 0; device < noted_.size(); ++device)
      if (noted_[device].load(std::memory_order_relaxed) == context)
        return static_cast<int>(device);
    return -1;
  }

  /// Notes the current context if it is the primary one of `device`, which the runtime says is
  /// current.
  void note(int device) noexcept {
    if (static_cast<std::size_t>(device) >= noted_.size()) return;
    std::atomic<void*>& noted = noted_[static_cast<std::size_t>(device)];
    if (noted.load(std::memory_order_relaxed) != nullptr) return;
    CurrentContext* ask = ask_.load(std::memory_order_acquire);
    if (ask == nullptr && !has_in_driver(ask, "cuCtxGetCurrent")) return;
    ask_.store(ask, std::memory_order_release);
    void* context = nullptr;
    if (ask(&context) != cudaSuccess || context == nullptr) return;
    if (others_met_.load(std::memory_order_relaxed) >= most_others) return;
    int (*state)(int device, unsigned int* flags, int* active) = nullptr;
    int (*retain)(void** context, int device) = nullptr;
    int (*release)(int device) = nullptr;
    if (!has_in_driver(state, "cuDevicePrimaryCtxGetState") ||
        !has_in_driver(retain, "cuDevicePrimaryCtxRetain") ||
        !has_in_driver(release, "cuDevicePrimaryCtxRelease"))
      return;
    // To retain a primary context that is not active would make it.
    void* primary = nullptr;
    unsigned int flags = 0;
    int active = 0;
    if (state(device, &flags, &active) != cudaSuccess) return;
    if (active != 0 && retain(&primary, device) == cudaSuccess) release(device);
    if (primary == context)
      noted.store(context, std::memory_order_relaxed);
    else
      others_met_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  using CurrentContext = int(void**);

  // bounds the cost for a program that makes contexts of its own
  static constexpr unsigned most_others = 100;
  std::atomic<CurrentContext*> ask_{nullptr};
  std::atomic<unsigned> others_met_{0};
  // as many devices as a machine usually has: device() looks through all of them
  std::array<std::atomic<void*>, 8> noted_{};
};
inline constinit PrimaryContexts primary_contexts{};

inline cudaError_t cuda_get_device(int* device) noexcept {
  if (const int known = primary_contexts.device(); known >= 0) {
    *device = known;
    return cudaSuccess;
  }
  const cudaError_t e = cudaGetDevice(device);
  if (e == cudaSuccess) primary_contexts.note(*device);
  return e;
}

/// Does nothing if the device is current already: a guard sets it at its end, whatever other code
/// has done meanwhile.
inline cudaError_t cuda_set_device(int device) noexcept {
  return device >= 0 && primary_contexts.device() == device ? cudaSuccess : cudaSetDevice(device);
}

}  // namespace runnel::inline RUNNEL_ABI::rt
