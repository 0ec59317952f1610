// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../support/gate.hpp"

#include "checker.hpp"

namespace sweep {

/// Blocks a stream until the scenario opens it.
class Gate : public test_support::Gate {
 public:
  Gate() : test_support::Gate{patience} {}
  /// As close_on() of a gate that was open.
  Gate(Checker& c, runnel::StreamRef stream) : Gate{} { close_on(c, stream); }
  void close_on(Checker& c, runnel::StreamRef stream) {
    c.attempt("close a gate", [&] { close_on(stream); });
  }
  /// Within an attempt.
  void close_on(runnel::StreamRef stream) {
    stream.launch_host_func([wait = blocking_function(), alive = Callable{}] { wait(); });
  }
};

}  // namespace sweep
