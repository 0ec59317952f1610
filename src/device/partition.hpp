// SPDX-License-Identifier: Apache-2.0
/// The data behind a Partition.
#pragma once

#include "backend.hpp"

#include <runnel/partition.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

struct PartitionData {
  int device;
  int multiprocessors;
  backend::Part native;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
