// SPDX-License-Identifier: Apache-2.0
/// Kernels that do nothing, and who is told of work. Neither counts as a runtime call.

#include "calls.hpp"
#include "engine.hpp"
#include "inspect.hpp"
#include "state.hpp"

using namespace standin;

extern "C" {

void standin_watch(StandinWatcher watcher) { engine().watcher.store(watcher); }

uint64_t standin_stream_number(void* stream) {
  const Lock lock{engine().mutex};
  const StreamPtr found = state().stream(static_cast<StreamHandle>(stream));
  return found == nullptr ? 0 : found->id;
}

int standin_run_work(void* stream, const char* name, const std::function<void()>& run) {
  Lock lock{engine().mutex};
  return work_on(static_cast<StreamHandle>(stream), [&](Stream& found) {
    engine().submit(found,
                    operation_of({.kind = Kind::kernel, .run = run, .opaque = true, .name = name}));
    return ok;
  })(lock);
}

int standin_run_kernel(void* stream, const char* name) {
  return standin_run_work(stream, name,
                          [] { std::this_thread::sleep_for(std::chrono::microseconds{50}); });
}

}  // extern "C"
