// SPDX-License-Identifier: Apache-2.0
/// The settings of the stand-in from the environment. README.md lists the variables.
#pragma once

#include <string>

#include "engine.hpp"

namespace standin {

enum class FaultForm {
  none,
  refused,   ///< does nothing and returns the code
  executed,  ///< does its work and returns the code, like an asynchronous error of earlier work
  sticky,    ///< this call and every later one return the code; objects can still be destroyed
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
  size_t memory;    // bytes of each device, and of pinned memory as a whole
  size_t channels;  // 0: each stream has a channel
  size_t channel_depth;
  size_t host_functions;  // how many run at a time; 0: any number
  bool pools;
  bool peers;
  bool memory_operations;
  bool read_only_registrations;
  bool reuse_handles;
  bool queries_crash;
  bool stuck_captures;
  std::string report;
  Fault fault;
};

const Settings& settings();

}  // namespace standin
