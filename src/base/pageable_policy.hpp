// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <runnel/copy.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// What set_default_pageable() has set on the calling thread.
inline thread_local constinit Pageable policy_of_thread = Pageable::stage;

}  // namespace runnel::inline RUNNEL_ABI::detail
