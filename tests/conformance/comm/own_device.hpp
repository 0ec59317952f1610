// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <runnel/device.hpp>
#include <runnel/world.hpp>

/// NCCL refuses processes that share a device.
inline void use_own_device(const runnel::World& world) {
  if (const int devices = runnel::Device::count(); devices > 0)
    runnel::Device{world.local_rank % devices}.use();
}
