// SPDX-License-Identifier: Apache-2.0
/// What only a stand-in has: its state, and kernels, for tests; and what it has run, for the
/// stand-in of the profiling library. None of it counts as a runtime call. Tests look the functions
/// up with dlsym, so that the same program also starts with the real runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

struct StandinView {
  long calls;
  bool faulted;
  bool sticky;
  bool fault_in_release;   ///< the failed call was to destroy or free something
  bool fault_elsewhere;    ///< another thread than this one made the failed call
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
  long calls_in_host_functions;  ///< refused
  long uses_after_destroy;       ///< likewise
};

/// State of the stand-in of the library of collective operations.
struct StandinCclView {
  long calls;    ///< that return a status, without the following ones
  long queries;  ///< for errors of operations
  long operations;
  std::size_t communicators;
  const char* fault_call;  ///< what has failed, or ""
};

/// Work that a device has done. Times are nanoseconds of std::chrono::steady_clock.
struct StandinWork {
  char kind;         ///< k: a kernel, c: a copy, f: a fill
  const char* name;  ///< of a kernel
  int device;
  std::uint64_t stream;
  std::size_t bytes;
  std::uint64_t begin;
  std::uint64_t end;
};
/// Is called when the work has run, but before anybody can know that it is complete.
using StandinWatcher = void (*)(const StandinWork*);

extern "C" {
void standin_inspect(StandinView* view);
void standin_watch(StandinWatcher watcher);
/// How StandinWork numbers the stream; 0 if there is none with this handle.
std::uint64_t standin_stream_number(void* stream);
/// Enqueues a kernel that does nothing for some microseconds. The name must live as long as the
/// process. Returns a status.
int standin_run_kernel(void* stream, const char* name);
/// The same for a kernel that does `run()`, for each launch if the stream is being captured.
int standin_run_work(void* stream, const char* name, const std::function<void()>& run);
/// Copies bytes for such a kernel. Freed memory counts as misuse, and is neither read nor written.
void standin_move(void* to, const void* from, std::size_t size);
void standin_ccl_inspect(StandinCclView* view);
}
