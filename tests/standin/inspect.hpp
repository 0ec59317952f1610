// SPDX-License-Identifier: Apache-2.0
/// The state of a stand-in, for tests. Reading it does not count as a runtime call. Tests look the function up with dlsym, so that the
/// same program also starts with the real runtime.
#pragma once

#include <cstddef>

struct StandinView {
  long calls;
  bool faulted;
  bool sticky;
  bool fault_in_release;   ///< the failed call was to destroy or free something
  const char* fault_call;  ///< the name of the failed call, or ""
  int device;              ///< current device of the calling thread
  int last_error;          ///< of the calling thread
  int capture_mode;        ///< of the calling thread, in the vendor's numbers
  std::size_t streams;
  std::size_t events;
  std::size_t pinned;
  std::size_t device_blocks;
  std::size_t graphs;
  std::size_t executable_graphs;
};

extern "C" void standin_inspect(StandinView* view);
