// SPDX-License-Identifier: Apache-2.0
/// What a test may ask a stand-in, without a call that counts: found with dlsym, so that the same program also starts on the real runtime.
#pragma once

#include <cstddef>

struct StandinView {
  long calls;
  bool faulted;
  bool sticky;
  bool fault_in_release;   ///< the call that failed was to give something back
  const char* fault_call;  ///< its name, or ""
  int device;              ///< of the calling thread, as is:
  int last_error;
  int capture_mode;  ///< as the vendor numbers them
  std::size_t streams;
  std::size_t events;
  std::size_t pinned;
  std::size_t device_blocks;
};

extern "C" void standin_inspect(StandinView* view);
