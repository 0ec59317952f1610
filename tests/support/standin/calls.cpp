// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

#include "inspect.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "settings.hpp"

namespace standin {
namespace {

std::atomic_bool used{false};
std::atomic_bool forked{false};

void report() {
  const Settings& s = settings();
  if (s.report.empty() || forked || !used) return;
  std::FILE* const out = std::fopen(s.report.c_str(), "a");
  if (out == nullptr) return;
  const Lock lock{engine().mutex};
  const State& now = state();
  const Misuse& m = now.misuse;
  std::fprintf(out,
               "{\"pid\": %ld, \"calls\": %ld, \"faulted\": %s, \"live_streams\": %zu, "
               "\"live_events\": %zu, \"live_pinned\": %zu, "
               "\"live_device\": %zu, \"live_graphs\": %zu, \"live_executable_graphs\": %zu, "
               "\"made_streams\": %zu, \"made_events\": %zu, "
               "\"double_destroy\": %ld, \"use_after_destroy\": %ld, "
               "\"unknown_handle\": %ld, \"wrong_device\": %ld, \"double_free\": %ld, "
               "\"use_after_free\": %ld, "
               "\"inside_host_function\": %ld, \"fault_call\": \"%s\"}\n",
               static_cast<long>(getpid()), now.calls, now.faulted ? "true" : "false",
               now.streams.live(), now.events.live(), now.blocks.live(Memory::pinned),
               now.blocks.live(Memory::device), now.graphs.live() - now.children,
               now.executables.live(), now.streams.made(), now.events.made(), m.double_destroy,
               m.use_after_destroy, m.unknown_handle, m.wrong_device, m.double_free,
               m.use_after_free, m.inside_host_function, now.fault_call);
  std::fclose(out);
}

// Runs after the program's own destructors, so that the report counts what they release.
[[gnu::destructor(101)]] void at_exit() { report(); }

void in_child() { forked = used.load(); }

// After an error that loses the context, CUDA does not call the host functions that are enqueued in
// it.
bool is_context_lost(int code) {
  return code == 214 || code == 220 || (700 <= code && code <= 719 && (code < 703 || code > 709));
}

void first_use() {
  if (!used.exchange(true)) pthread_atfork(nullptr, nullptr, in_child);
}

}  // namespace

Verdict begin_call(Call kind, const char* name) {
  // No one may call in a forked child: it does not have the parent's threads, and one of them may
  // have held the mutex.
  if (forked) std::abort();
  first_use();
  Lock lock{engine().mutex};
  State& now = state();
  engine().done.wait(lock, [&] {
    return now.holder == std::thread::id{} || now.holder == std::this_thread::get_id();
  });
  const Settings& s = settings();
  ++now.calls;
  if (inside_host_function()) {
    ++now.misuse.inside_host_function;
    return {not_permitted, false};
  }
  const bool may_execute = s.fault.code != no_context;  // without a context nothing is done
  if (now.sticky) return {s.fault.code, may_execute && kind == Call::releases};
  if (s.fault.form != FaultForm::none && now.calls == s.fault.call) {
    now.faulted = true;
    now.fault_call = name;
    now.fault_in_release = kind == Call::releases;
    now.fault_thread = std::this_thread::get_id();
    now.sticky = s.fault.form == FaultForm::sticky;
    if (now.sticky && is_context_lost(s.fault.code)) engine().drop_host_functions();
    const bool executes = now.sticky ? kind == Call::releases
                                     : s.fault.form == FaultForm::executed && kind != Call::makes;
    return {s.fault.code, may_execute && executes};
  }
  if (s.devices == 0 && kind != Call::anywhere) return {no_device, false};
  return {};
}

Error end_call(int code) {
  if (code == not_ready && !vendor::not_ready_is_last_error) return static_cast<Error>(code);
  if (code != ok || vendor::success_clears_last_error) this_thread().last_error = code;
  return static_cast<Error>(code);
}

bool breaks_captures() {
  const ThreadState& thread = this_thread();
  bool any = false;
  for (const CapturePtr& capture : state().captures) {
    const bool own = capture->thread == &thread;
    const bool counts = own ? capture->mode != API(StreamCaptureModeRelaxed) &&
                                  thread.capture_mode != API(StreamCaptureModeRelaxed)
                            : capture->mode == API(StreamCaptureModeGlobal) &&
                                  thread.capture_mode == API(StreamCaptureModeGlobal);
    if (capture->ended || !counts) continue;
    capture->broken = true;
    any = true;
  }
  return any;
}

}  // namespace standin

using namespace standin;

extern "C" void standin_inspect(StandinView* view) {
  const Lock lock{engine().mutex};
  State& now = state();
  *view = {now.calls,
           now.faulted,
           now.sticky,
           now.fault_in_release,
           now.faulted && now.fault_thread != std::this_thread::get_id(),
           now.fault_call,
           this_thread().device,
           this_thread().last_error,
           this_thread().capture_mode,
           now.streams.live(),
           now.events.live(),
           now.blocks.live(Memory::pinned),
           now.blocks.live(Memory::device),
           now.graphs.live() - now.children,
           now.executables.live(),
           now.misuse.inside_host_function,
           now.misuse.use_after_destroy};
}
