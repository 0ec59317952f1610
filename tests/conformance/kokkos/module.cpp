// SPDX-License-Identifier: Apache-2.0
// A module that a program opens. It is built with hidden symbols, as such modules are, so it shares
// no static object with the program.
#include "module.hpp"

namespace {
using namespace kokkos_tests;

constexpr ModuleCalls calls{
    .stream_of = [](const Space& exec) { return kokkos::as_stream(exec).unfenced_stream(); },
    .is_instance_of =
        [](StreamRef stream, const Space& exec) {
          return kokkos::fenced_exec_space<Space>(stream) == exec;
        },
    .wait_for_stream_of = [](const Space& exec) { kokkos::as_stream(exec).synchronize(); },
    .launch_affine = enqueue_affine,
};

}  // namespace

const ModuleCalls* runnel_kokkos_module() { return &calls; }
