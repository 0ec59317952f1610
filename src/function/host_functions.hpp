// SPDX-License-Identifier: Apache-2.0
/// Host functions, as the library's own sources use them.
#pragma once

#include "base/counters.hpp"
#include "base/not_copied.hpp"
#include "base/operation.hpp"
#include "function/host_writers.hpp"

#include <runnel/detail/host_function.hpp>

#include <cstdint>
#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

/// Stored with each function that the thread launches and each copy that it stages, so that an
/// exception can be attributed. Initially 0.
extern thread_local constinit uint64_t host_function_label;
/// The number of the launch of the host function that the thread runs; 0: it runs none, or one of a
/// graph, or the launch was not observed.
extern thread_local constinit uint64_t running_function;

/// The scope of a host function, on a thread of the runtime. Resets the thread's
/// settings at the end, so that the next function does not see them.
class InHostFunction : NotCopied {
 public:
  /// `launch`: the number of its launch; 0 for one of a graph, and if the launch was not observed.
  explicit InHostFunction(uint64_t launch) noexcept;
  ~InHostFunction();
};

struct DestroyHostFunction {
  void operator()(HostFunction* function) const noexcept {
    const bool is_writer = function->is_writer;
    function->destroy(function);
    if (is_writer) host_writers().end_functions(1);
    count_ended(Count::ended_functions);
  }
};
using OwnedFunction = std::unique_ptr<HostFunction, DestroyHostFunction>;

/// Describes a run of the function. Requires: its launch was observed.
Operation about_run(const HostFunction& function) noexcept;

/// Calls the function. An exception goes to the stream of `launched`, which may be a copy.
void call_as(const HostFunction& launched, HostFunction& function, ScopedEvent& event) noexcept;

/// Runs a function of a graph that other code has captured: what the runtime calls at each launch.
/// An exception goes to the next wait for the stream on which the function was launched.
void run_again(void* function) noexcept;

/// Destroys the functions that are pending in streams of the device. Requires: the device is lost.
void discard_host_functions(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
