// SPDX-License-Identifier: Apache-2.0
#include "comm/devices.hpp"

#include "base/max_devices.hpp"
#include "base/never_destroyed.hpp"

#include <runnel/device.hpp>

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Devices {
  std::array<sync::Atomic<CommunicatingDevice*>, max_devices> all{};
  sync::Mutex lock;  // guards the following member, and every change of the other
  std::vector<std::weak_ptr<Baton>> batons;
};
Devices& devices() { return never_destroyed<Devices>(); }

/// All batons that make_baton() has made.
std::vector<std::shared_ptr<Baton>> living_batons() {
  std::vector<std::shared_ptr<Baton>> found;
  const std::lock_guard lock{devices().lock};
  for (const auto& each : devices().batons)
    if (auto baton = each.lock()) found.push_back(std::move(baton));
  return found;
}

}  // namespace

CommunicatingDevice& communicating_device(int ordinal) {
  sync::Atomic<CommunicatingDevice*>& place = devices().all.at(static_cast<std::size_t>(ordinal));
  if (CommunicatingDevice* const found = place.load(std::memory_order_acquire)) [[likely]]
    return *found;
  const bool memory_is_the_hosts = Device{ordinal}.hardware_queues() == 0;
  const std::lock_guard lock{devices().lock};
  if (place.load(std::memory_order_relaxed) == nullptr)
    place.store(new CommunicatingDevice{{}, memory_is_the_hosts}, std::memory_order_release);
  return *place.load(std::memory_order_relaxed);
}

std::shared_ptr<Baton> make_baton() {
  auto made = std::make_shared<Baton>();
  const std::lock_guard lock{devices().lock};
  std::erase_if(devices().batons, [](const auto& each) { return each.expired(); });
  devices().batons.push_back(made);
  return made;
}

void wait_for_all_batons() {
  for (const auto& device : devices().all)
    if (CommunicatingDevice* const found = device.load(std::memory_order_acquire))
      found->baton.wait();
  for (const auto& baton : living_batons()) baton->wait();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
