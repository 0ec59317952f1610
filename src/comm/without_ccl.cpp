// SPDX-License-Identifier: Apache-2.0
/// Replaces Engine::ccl in a build without it.
#include "comm/state.hpp"

#include <runnel/error.hpp>

#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {
[[noreturn]] void refuse() {
  throw_error(errc::not_supported, making_communicator,
              "this runnel was built without NCCL and RCCL: build it for GPUs with -Dccl=enabled, "
              "or use Engine::mpi");
}

/// Whether the calling thread is in a together(). Nesting is refused as in other builds.
thread_local constinit bool is_together = false;

}  // namespace

bool has_ccl() noexcept { return false; }
bool is_in_together() noexcept { return is_together; }
std::shared_ptr<CommunicatorState> make_ccl_state(const World&, const CommunicatorOptions&) {
  refuse();
}
std::vector<std::shared_ptr<CommunicatorState>> make_ccl_states(std::span<const Device>,
                                                                const CommunicatorOptions&) {
  refuse();
}

struct Together::Operations {};
Together::Together() {
  if (std::exchange(is_together, true)) refuse_nested_together();
}
Together::~Together() { is_together = false; }
void Together::enqueue() {}

}  // namespace runnel::inline RUNNEL_ABI::detail
