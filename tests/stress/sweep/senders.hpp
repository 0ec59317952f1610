// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checker.hpp"

namespace sweep {

/// Chains over two streams: values, when_all, bulk, an exception, a stop.
void senders(Checker& c);

}  // namespace sweep
