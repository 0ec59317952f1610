// SPDX-License-Identifier: Apache-2.0
/// The vendor's own handle types. They are named by struct tag, so that this header includes no vendor header.
#pragma once

#include <runnel/config.hpp>

#if defined RUNNEL_BACKEND_CUDA || defined RUNNEL_HIP_PLATFORM_NVIDIA
struct CUstream_st;
struct CUevent_st;
namespace runnel::inline RUNNEL_ABI::native {
using stream = ::CUstream_st*;  ///< is `cudaStream_t`
using event = ::CUevent_st*;    ///< is `cudaEvent_t`
}  // namespace runnel::inline RUNNEL_ABI::native
#elif defined RUNNEL_BACKEND_HIP
struct ihipStream_t;
struct ihipEvent_t;
namespace runnel::inline RUNNEL_ABI::native {
using stream = ::ihipStream_t*;  ///< is `hipStream_t`
using event = ::ihipEvent_t*;    ///< is `hipEvent_t`
}  // namespace runnel::inline RUNNEL_ABI::native
#else
namespace runnel::inline RUNNEL_ABI::native {
struct host_stream;
struct host_event;
using stream = host_stream*;  ///< of a thread-backed device
using event = host_event*;    ///< of a thread-backed device
}  // namespace runnel::inline RUNNEL_ABI::native
#endif
