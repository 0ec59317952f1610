// SPDX-License-Identifier: Apache-2.0
/// What the environment asks of the stand-in; README.md lists the variables.
#pragma once

#include <cstddef>
#include <string>

#include "engine.hpp"

namespace standin {

enum class FaultForm {
  none,
  refused,   ///< nothing is done, the code is returned
  executed,  ///< done, and the code is returned: an earlier asynchronous error that comes up here
  sticky,    ///< this and every later call; handles can still be given back
};

struct Fault {
  FaultForm form = FaultForm::none;
  long call = 0;
  int code = 0;
};

struct Settings {
  Scheduler scheduler;
  long patience_ms;
  long seed;
  int devices;
  int least_priority;
  int greatest_priority;
  std::size_t memory;    // of each device, and of pinned memory as a whole
  std::size_t channels;  // 0: one for each stream
  std::size_t channel_depth;
  std::size_t host_functions;  // that run at a time; 0: any number
  bool pools;
  bool peers;
  bool memory_operations;
  bool reuse_handles;
  std::string report;
  Fault fault;
};

const Settings& settings();

}  // namespace standin
