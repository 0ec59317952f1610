// SPDX-License-Identifier: Apache-2.0
/// The functions of the program that observe the library: a hook, and a handler of the race
/// checker's reports.
#pragma once

#include "base/pageable_policy.hpp"
#include "base/process.hpp"

#include <runnel/config.hpp>

#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// While it lives, the calling thread is in a function of the program that must not use the
/// library: operations are refused, and frees wait. What that function sets all the same does not
/// stay with the caller.
class InHook {
 public:
  InHook() noexcept
      : outer_{std::exchange(in_hook, true)},
        in_function_{std::exchange(in_host_function, true)},
        policy_{policy_of_thread} {}
  InHook(const InHook&) = delete;
  InHook& operator=(const InHook&) = delete;
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
