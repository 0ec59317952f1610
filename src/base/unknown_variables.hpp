// SPDX-License-Identifier: Apache-2.0
/// Names environment variables that look like the library's and that nothing reads: a typing error.
#pragma once

#include <runnel/config.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>

#include <unistd.h>

namespace runnel::inline RUNNEL_ABI::detail {

/// What follows RUNNEL_ in the variables of docs/environment.md, of the Python package, and of the
/// repository's tests.
inline constexpr std::string_view known_variables[] = {"CHECK",
                                                       "HANG_REPORT",
                                                       "HOST_DEVICES",
                                                       "HOST_MEMORY",
                                                       "STAGING_CHUNK",
                                                       "STAGING_MEMORY",
                                                       "STAGING_WORKERS",
                                                       "TRACE",
                                                       "TRACE_CUPTI",
                                                       "WORLD_FILE",
                                                       "BACKEND",
                                                       "BACKENDS",
                                                       "BACKEND_REASON",
                                                       "EXIT_CASES",
                                                       "GIB",
                                                       "KOKKOS_MODULE",
                                                       "LONG_TESTS",
                                                       "MODEL",
                                                       "MODULE",
                                                       "NO_BLOCK_CACHE",
                                                       "SEED",
                                                       "STANDIN",
                                                       "TREE"};

/// Reports them to stderr. Called once.
inline void name_unknown_variables() noexcept {
  constexpr std::string_view prefix = "RUNNEL_";
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    std::string_view name{*each};
    if (!name.starts_with(prefix)) continue;
    name = name.substr(prefix.size(), name.find('=') - prefix.size());
    if (name.starts_with("STANDIN_") || name.starts_with("TEST_")) continue;
    if (std::ranges::find(known_variables, name) == std::end(known_variables))
      std::fprintf(stderr,
                   "runnel: there is no variable RUNNEL_%.*s, so it changes nothing "
                   "(docs/environment.md lists the variables)\n",
                   static_cast<int>(name.size()), name.data());
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
