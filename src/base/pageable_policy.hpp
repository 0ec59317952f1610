// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <runnel/copy.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The calling thread's policy, as set_default_pageable() has set it.
inline thread_local constinit Pageable policy_of_thread = Pageable::stage;

}  // namespace runnel::inline RUNNEL_ABI::detail
