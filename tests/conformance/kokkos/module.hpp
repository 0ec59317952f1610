// SPDX-License-Identifier: Apache-2.0
/// The functions of the module for the program that opens it. The environment variable
/// RUNNEL_KOKKOS_MODULE names the module.
#pragma once

#include "support.hpp"

namespace kokkos_tests {

struct ModuleCalls {
  StreamRef (*stream_of)(const Space& exec);
  bool (*is_instance_of)(StreamRef stream, const Space& exec);
  void (*wait_for_stream_of)(const Space& exec);
  void (*launch_affine)(StreamRef stream, const Data<int*>& x, int a, int b);
};

}  // namespace kokkos_tests

extern "C" [[gnu::visibility("default")]] const kokkos_tests::ModuleCalls* runnel_kokkos_module();
