// SPDX-License-Identifier: Apache-2.0
/// What all communicators of a device share.
#pragma once

#include "comm/baton.hpp"

#include <runnel/config.hpp>

#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

/// What is known of a device.
struct CommunicatingDevice {
  Baton baton;               // of its communicators
  bool memory_is_the_hosts;  // its streams are threads, which can use its memory
};
[[nodiscard]] CommunicatingDevice& communicating_device(int ordinal);
/// A baton for one communicator.
[[nodiscard]] std::shared_ptr<Baton> make_baton();
/// Holds the calling thread until all operations so far have ended.
void wait_for_all_batons();

}  // namespace runnel::inline RUNNEL_ABI::detail
