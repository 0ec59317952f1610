// SPDX-License-Identifier: Apache-2.0
/// The base of classes whose objects are neither copied nor moved.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

struct NotCopied {
  NotCopied() = default;
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
