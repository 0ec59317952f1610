// SPDX-License-Identifier: Apache-2.0
/// The data behind a Partition.
#pragma once

#include "backend.hpp"

#include <runnel/partition.hpp>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

struct PartitionData {
  int device;
  int multiprocessors;
  backend::Part native;
};

}}}  // namespace runnel::RUNNEL_ABI::detail
