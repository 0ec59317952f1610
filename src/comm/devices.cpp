// SPDX-License-Identifier: Apache-2.0
#include "comm/devices.hpp"

#include "base/max_devices.hpp"
#include "base/never_destroyed.hpp"

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

struct Orders {
  std::array<SerialOrder, max_devices> of_devices;
  sync::Mutex lock;  // Guards `of_communicators`.
  std::vector<std::weak_ptr<SerialOrder>> of_communicators;
};
Orders& orders() { return never_destroyed<Orders>(); }

/// The live orders that make_serial_order() has created.
std::vector<std::shared_ptr<SerialOrder>> live_orders() {
  std::vector<std::shared_ptr<SerialOrder>> found;
  const std::lock_guard lock{orders().lock};
  for (const auto& each : orders().of_communicators)
    if (auto order = each.lock()) found.push_back(std::move(order));
  return found;
}

}  // namespace

SerialOrder& order_of_device(int ordinal) {
  return orders().of_devices.at(static_cast<std::size_t>(ordinal));
}

std::shared_ptr<SerialOrder> make_serial_order() {
  auto made = std::make_shared<SerialOrder>();
  const std::lock_guard lock{orders().lock};
  std::erase_if(orders().of_communicators, [](const auto& each) { return each.expired(); });
  orders().of_communicators.push_back(made);
  return made;
}

void wait_for_all_orders() {
  for (SerialOrder& order : orders().of_devices) order.wait();
  for (const auto& order : live_orders()) order->wait();
}

}}}  // namespace runnel::RUNNEL_ABI::detail
