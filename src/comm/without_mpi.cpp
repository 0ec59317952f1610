// SPDX-License-Identifier: Apache-2.0
/// Replaces Engine::mpi in a build without it.
#include "comm/state.hpp"

#include <runnel/error.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

std::shared_ptr<CommunicatorState> make_mpi_state(const World&, const CommunicatorOptions&) {
  throw_error(errc::not_supported, making_communicator,
              "this runnel was built without MPI: build it with -Dmpi=enabled, or use Engine::ccl");
}

bool do_share_devices(const World&) { return false; }

}  // namespace runnel::inline RUNNEL_ABI::detail
