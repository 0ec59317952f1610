// SPDX-License-Identifier: Apache-2.0
/// What the programs that show errors share.
#pragma once

#include <cstdio>
#include <runnel/error.hpp>

namespace comm {

/// Prints the error that a call throws.
template <class F>
void say_error(F f) {
  try {
    f();
    std::puts("no error");
  } catch (const runnel::Error& error) {
    std::puts(error.what());
  }
}

}  // namespace comm
