// SPDX-License-Identifier: Apache-2.0
/// The user's functions that observe the library: a hook, and a handler of race reports.
#pragma once

#include "base/not_copied.hpp"
#include "base/pageable_policy.hpp"
#include "base/process.hpp"

#include <runnel/config.hpp>

#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// In this scope, the calling thread runs a user function that must not use the library: operations
/// throw, and frees are deferred. A pageable policy that the function sets is undone at the end of
/// the scope.
class InHook : NotCopied {
 public:
  InHook() noexcept
      : outer_{std::exchange(in_hook, true)},
        in_function_{std::exchange(in_host_function, true)},
        policy_{policy_of_thread} {}
  ~InHook() {
    policy_of_thread = policy_;
    in_host_function = in_function_;
    in_hook = outer_;
  }

 private:
  bool outer_;
  bool in_function_;
  Pageable policy_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
