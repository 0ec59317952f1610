// SPDX-License-Identifier: Apache-2.0
/// The state that all communicators of a device share.
#pragma once

#include "comm/serial_order.hpp"

#include <runnel/config.hpp>

#include <memory>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// The state of one device.
struct CommunicatingDevice {
  SerialOrder order;    // Of its communicators.
  bool is_host_memory;  // Its streams run on threads of the host, which can access its memory.
};
[[nodiscard]] CommunicatingDevice& communicating_device(int ordinal);
/// Creates an order for one communicator.
[[nodiscard]] std::shared_ptr<SerialOrder> make_serial_order();
/// Blocks the calling thread until all operations enqueued so far have ended.
void wait_for_all_orders();

}}}  // namespace runnel::RUNNEL_ABI::detail
