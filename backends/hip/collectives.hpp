// SPDX-License-Identifier: Apache-2.0
/// RCCL, which has NCCL's names. HIP's NVIDIA platform uses NCCL itself.
#pragma once

#ifdef __HIP_PLATFORM_NVIDIA__
#include "../cuda/collectives.hpp"
#else

#if __has_include(<rccl/rccl.h>)
#include <rccl/rccl.h>
#else
#include <rccl.h>
#endif
#include <runnel/native.hpp>

#include <type_traits>

static_assert(NCCL_VERSION_CODE >= 21300, "runnel needs RCCL 2.13 or later");
static_assert(std::is_same_v<runnel::native::stream, hipStream_t>);

#endif
