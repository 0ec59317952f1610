// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <cstdio>
#include <cstdlib>

#include "vendor.hpp"

namespace standin {
namespace {

std::string text_of(const char* name, const char* otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : otherwise;
}

long number_of(const char* name, long otherwise) {
  const std::string text = text_of(name, "");
  return text.empty() ? otherwise : std::strtol(text.c_str(), nullptr, 10);
}

[[noreturn]] void refuse(const char* name, const std::string& text) {
  std::fprintf(stderr, "stand-in: %s=%s is not understood\n", name, text.c_str());
  std::abort();
}

Scheduler scheduler_of(const std::string& text) {
  if (text == "eager") return Scheduler::eager;
  if (text == "lazy") return Scheduler::lazy;
  if (text == "reverse") return Scheduler::reverse;
  if (text == "random") return Scheduler::random;
  refuse("STANDIN_SCHEDULER", text);
}

Fault fault_of(const std::string& text) {
  Fault fault;
  if (text.empty()) return fault;
  char form[16] = {};
  if (std::sscanf(text.c_str(), "call=%ld;form=%15[a-z];code=%d", &fault.call, form, &fault.code) !=
      3)
    refuse("STANDIN_FAULT", text);
  const std::string name = form;
  fault.form = name == "refused"    ? FaultForm::refused
               : name == "executed" ? FaultForm::executed
               : name == "sticky"   ? FaultForm::sticky
                                    : FaultForm::none;
  if (fault.form == FaultForm::none) refuse("STANDIN_FAULT", text);
  return fault;
}

Settings read() {
  Settings s{};
  s.scheduler = scheduler_of(text_of("STANDIN_SCHEDULER", "eager"));
  s.patience_ms = number_of("STANDIN_PATIENCE_MS", 50);
  s.seed = number_of("STANDIN_SEED", 1);
  s.devices = static_cast<int>(number_of("STANDIN_DEVICES", 1));
  const std::string range = text_of("STANDIN_PRIORITIES", vendor::priorities);
  if (std::sscanf(range.c_str(), "%d,%d", &s.least_priority, &s.greatest_priority) != 2)
    refuse("STANDIN_PRIORITIES", range);
  s.memory = static_cast<size_t>(number_of("STANDIN_MEMORY_MIB", 4096)) << 20U;
  s.channels = static_cast<size_t>(number_of("STANDIN_CHANNELS", 0));
  s.channel_depth = static_cast<size_t>(number_of("STANDIN_CHANNEL_DEPTH", 1024));
  s.host_functions = static_cast<size_t>(number_of("STANDIN_HOST_FUNCTIONS", 0));
  s.pools = number_of("STANDIN_POOLS", 1) != 0;
  s.peers = number_of("STANDIN_PEERS", 1) != 0;
  s.memory_operations = number_of("STANDIN_MEMORY_OPERATIONS", 1) != 0;
  s.read_only_registrations = number_of("STANDIN_READ_ONLY", 1) != 0;
  s.reuse_handles = number_of("STANDIN_REUSE_HANDLES", 0) != 0;
  s.queries_crash = number_of("STANDIN_QUERIES_CRASH", 1) != 0;
  s.stuck_captures = number_of("STANDIN_STUCK_CAPTURES", 0) != 0;
  s.report = text_of("STANDIN_REPORT", "");
  s.fault = fault_of(text_of("STANDIN_FAULT", ""));
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings& instance = *new Settings{read()};
  return instance;
}

}  // namespace standin
