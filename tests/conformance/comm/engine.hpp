// SPDX-License-Identifier: Apache-2.0
/// What the cases need of the engine that they run with: mpi_main.cpp and ccl_main.cpp.
#pragma once

#include <runnel/communicator.hpp>

namespace comm {

runnel::Engine engine();
/// All processes of the test.
const runnel::World& world();
/// Returns when all processes have called it.
void meet();
/// Whether it is so in any process, all of which call this.
bool any_process(bool here);

/// A communicator of all processes.
inline runnel::Communicator make(runnel::CommunicatorOptions options = {}) {
  options.engine = engine();
  return runnel::Communicator{world(), options};
}

}  // namespace comm
