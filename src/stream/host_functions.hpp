// SPDX-License-Identifier: Apache-2.0
/// How the library's own sources treat host functions.
#pragma once

#include "base/counters.hpp"
#include "base/operation.hpp"

#include <runnel/detail/host_function.hpp>

#include <cstdint>
#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

/// A mark that goes with each function the thread launches and each copy it stages, so that an
/// exception can be assigned; 0 at first.
extern thread_local constinit std::uint64_t host_function_label;

/// While it lives, the calling thread, which is the runtime's, runs a host function of that stream.
/// What the function sets for its thread does not stay: the next function on the thread finds it as
/// new.
class InHostFunction {
 public:
  explicit InHostFunction(std::uint64_t stream) noexcept;
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
  ~InHostFunction();
};

struct DestroyHostFunction {
  void operator()(HostFunction* function) const noexcept {
    function->destroy(function);
    count_destroyed_function();
  }
};
using OwnedFunction = std::unique_ptr<HostFunction, DestroyHostFunction>;

/// A run of the function. Requires: somebody observed its launch.
[[nodiscard]] Operation about_run(const HostFunction& function) noexcept;

/// Enqueues the function on a stream of the library's own, of that device. Gives the function back
/// if that fails.
[[nodiscard]] OwnedFunction try_launch(native::stream stream, int device,
                                       OwnedFunction function) noexcept;

/// Destroys the functions that wait in the streams of a device. Requires: the device is lost.
void discard_host_functions(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
