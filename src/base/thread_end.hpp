// SPDX-License-Identifier: Apache-2.0
/// Calls at the end of a thread, for tables that are also made while the thread is ending: a user's thread_local object may use the
/// library in its destructor, after every thread_local object of the library is gone.
#pragma once

#include <runnel/config.hpp>

#include <cxxabi.h>

extern "C" {
[[gnu::visibility("hidden")]] extern void* __dso_handle;
}

namespace runnel::inline RUNNEL_ABI::detail {

/// Calls `call(argument)` at the end of the calling thread, in the reverse order of registration, as destructors of thread_local objects
/// are called. It may be used again while the thread is ending: such a call is made as well.
inline void at_thread_end(void (*call)(void*), void* argument) { abi::__cxa_thread_atexit(call, argument, &__dso_handle); }

}  // namespace runnel::inline RUNNEL_ABI::detail
