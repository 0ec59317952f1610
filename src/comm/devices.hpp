// SPDX-License-Identifier: Apache-2.0
/// The orders in which all communicators of a device, or of one's own, run their operations.
#pragma once

#include "comm/serial_order.hpp"

#include <runnel/config.hpp>

#include <memory>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// The order that the communicators of a device share.
[[nodiscard]] SerialOrder& order_of_device(int ordinal);
/// Creates an order for one communicator.
[[nodiscard]] std::shared_ptr<SerialOrder> make_serial_order();
/// Blocks the calling thread until all operations enqueued so far have ended.
void wait_for_all_orders();

}}}  // namespace runnel::RUNNEL_ABI::detail
