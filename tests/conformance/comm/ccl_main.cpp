// SPDX-License-Identifier: Apache-2.0
// Communicators over NCCL or RCCL, in several processes: launch.py -n 4 ccl_tests. Each process
// runs the same cases in the same order.
#include "cases.hpp"
#include "own_device.hpp"

namespace comm {

runnel::Engine engine() { return runnel::Engine::ccl; }

const runnel::World& world() {
  static const runnel::World& found = *new runnel::World{runnel::World::from_environment()};
  return found;
}

void meet() {
  char nothing = 0;
  if (world().size > 1) world().broadcast(&nothing, 1);
}

bool any_process(bool here) {
  const runnel::Communicator all = make();
  const runnel::Stream stream;
  runnel::DeviceBuffer<int> found{1, stream};
  fill(stream, found, here ? 1 : 0);
  all.all_reduce(stream, found, runnel::Reduce::max);
  Ints value(1);
  copy(stream, value, found);
  stream.synchronize();
  return value[0] != 0;
}

}  // namespace comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  use_own_device(comm::world());
  comm::print_failures_only(comm::world().rank);
  return RUN_ALL_TESTS();
}
