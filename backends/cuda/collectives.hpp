// SPDX-License-Identifier: Apache-2.0
/// NCCL, 2.13 and later. RCCL has the same names; ../cuda_hip/collectives.cpp uses them.
#pragma once

#include <nccl.h>
#include <runnel/native.hpp>

#include <type_traits>

static_assert(NCCL_VERSION_CODE >= 21300, "runnel needs NCCL 2.13 or later");
static_assert(std::is_same_v<runnel::native::stream, cudaStream_t>);
