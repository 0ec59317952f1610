// SPDX-License-Identifier: Apache-2.0
#include "checker.hpp"

#include <runnel/trace.hpp>

#include <string_view>
#include <vector>

namespace sweep {
using namespace runnel;

namespace {

/// Written independently of the library's table, so that the sweep notices a mistake in either.
errc expected(int code) {
  switch (code) {
    case 2:
      return errc::out_of_memory;
    case 4:
      return errc::not_permitted;
    case 35:
    case 46:
    case 100:
    case 802:
      return errc::no_device;
    case 101:
      return errc::invalid_device;
    case 201:
    case 400:
      return errc::invalid_handle;
    case 600:
      return errc::not_ready;
    case 700:
    case 719:
      return errc::device_lost;
    case 910:
      return errc::not_supported;
    default:
      return 900 <= code && code <= 908 ? errc::capture : errc::unknown;
  }
}

///@{ The same for a status of the library of collective operations.
errc expected_of_ccl(int code) {
  return code == 2 || code == 6 ? errc::peer_lost : errc::communicator_broken;
}
const char* text_of_ccl(int code) {
  constexpr const char* texts[] = {"",
                                   "unhandled runtime error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited",
                                   "in progress"};
  return code < 8 ? texts[code] : "unknown result code";
}
///@}

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

}  // namespace

Checker::Checker()
    : inspect_{reinterpret_cast<void (*)(StandinView*)>(dlsym(RTLD_DEFAULT, "standin_inspect"))},
      inspect_ccl_{
          reinterpret_cast<void (*)(StandinCclView*)>(dlsym(RTLD_DEFAULT, "standin_ccl_inspect"))} {
  if (inspect_ == nullptr && std::string_view{RUNNEL_BACKEND} != "host") {
    std::printf("not on a stand-in runtime, so no call can be made to fail\n");
    std::exit(77);
  }
  const char* const text = std::getenv("STANDIN_FAULT");
  char form[16] = {};
  long call = 0;
  if (text != nullptr &&
      std::sscanf(text, "call=%ld;form=%15[a-z];code=%d", &call, form, &fault_.code) == 3)
    fault_.form = form;
  const char* const ccl = std::getenv("STANDIN_CCL_FAULT");
  if (text != nullptr || ccl == nullptr || inspect_ccl_ == nullptr) return;
  fails_ccl_ = true;
  fault_ = {ccl, std::atoi(std::strstr(ccl, "code=") + 5)};
}

StandinView Checker::view() const {
  const exhaustion::Pause pause;
  StandinView view{};
  view.fault_call = "";
  if (inspect_ != nullptr)
    inspect_(&view);
  else
    view.device = Device::current().ordinal();
  if (fails_ccl_) {
    view.fault_call = ccl_view().fault_call;
    view.faulted = *view.fault_call != '\0';
  }
  if (!exhaustion::is_planned()) return view;
  const exhaustion::View now = exhaustion::view();
  view.faulted = now.faults > 0;
  view.sticky = now.lasts;
  view.fault_call = now.where;
  return view;
}

StandinCclView Checker::ccl_view() const {
  StandinCclView view{0, 0, 0, 0, ""};
  if (inspect_ccl_ != nullptr) inspect_ccl_(&view);
  return view;
}

Checker::Snapshot Checker::snapshot() const {
  const exhaustion::Pause pause;
  const StandinView now = view();
  // Once a current stream is set, reading it makes no runtime call. The first attempt of every
  // scenario sets one.
  const bool is_set = inspect_ == nullptr || now.calls > 0;
  return {live_objects(), now.device, is_set ? runnel::detail::current.id : 0, now.last_error,
          now.capture_mode};
}

void Checker::violation(const char* format, ...) {
  ++violations_;
  std::va_list arguments;
  va_start(arguments, format);
  std::printf("VIOLATION: ");
  std::vprintf(format, arguments);
  std::printf(" [at %s]\n", view().fault_call);
  va_end(arguments);
}

void Checker::thrown(const char* what, const Error& error) {
  const StandinView now = view();
  ++thrown_;
  seen_ = error.what();
  told_lost_ = error.code() == errc::device_lost;
  if (exhaustion::is_planned()) {
    if (thrown_ > exhaustion::view().faults && !now.sticky)
      violation("%s: threw without a fault: %s", what, error.what());
    if (error.code() != errc::out_of_memory)
      violation("%s: threw another error than \"out of memory\": %s", what, error.what());
    return;
  }
  if (!now.faulted) violation("%s: threw without a fault: %s", what, error.what());
  if (!now.sticky && thrown_ > 1)
    violation("%s: one fault caused a second exception: %s", what, error.what());
  if (fails_ccl_) return thrown_by_ccl(what, error);
  // Two errors have no native code: "no device" has the number in its text, and "not ready" of a
  // time difference has no number.
  const bool no_device = ends_with(now.fault_call, "GetDeviceCount") &&
                         expected(fault_.code) == errc::no_device &&
                         std::strstr(error.what(), std::to_string(fault_.code).c_str()) != nullptr;
  const bool in_words =
      no_device || (fault_.code == 600 && ends_with(now.fault_call, "ElapsedTime"));
  // The library of collective operations has called the runtime.
  if (communicates_ && error.code() == errc::communicator_broken) return;
  // HIP 5's function returns -1 without a reason, which the library reports as an invalid handle.
  if (ends_with(now.fault_call, "GetStreamDeviceId") && error.native_code() == 400) return;
  if (error.native_code() != (in_words ? 0 : fault_.code))
    violation("%s: native code %d instead of %d: %s", what, error.native_code(), fault_.code,
              error.what());
  if (error.code() != expected(fault_.code))
    violation("%s: code %d does not follow from %d", what, error.code().value(), fault_.code);
  if (std::strlen(error.operation()) < 4 || std::strstr(error.what(), error.operation()) == nullptr)
    violation("%s: the text lacks the operation: %s", what, error.what());
  if (!in_words && std::strlen(error.native_name()) == 0) violation("%s: no native name", what);
}

void Checker::thrown_by_ccl(const char* what, const Error& error) {
  const std::string_view text = error.what();
  if (std::strlen(error.operation()) < 4 || text.find(error.operation()) == text.npos)
    violation("%s: the text lacks the operation: %s", what, error.what());
  // If one communicator fails, all of the process are aborted, and another rank may get its error
  // before the one that failed.
  const bool is_of_another = text.find("another communicator failed") != text.npos ||
                             text.find("another rank") != text.npos ||
                             (batons_ > 1 && error.code() == errc::peer_lost &&
                              text.find("remote process exited") != text.npos);
  if (!is_of_another && error.code() != expected_of_ccl(fault_.code) &&
      error.code() != errc::communicator_broken)
    violation("%s: code %d does not follow from %d: %s", what, error.code().value(), fault_.code,
              error.what());
  if (!is_of_another && text.find(text_of_ccl(fault_.code)) == text.npos)
    violation("%s: the text lacks the library's reason: %s", what, error.what());
}

void Checker::thrown_without_memory(const char* what, const std::bad_alloc& error) {
  ++thrown_;
  seen_ = error.what();
  const StandinView now = view();
  if (!exhaustion::is_planned() || (thrown_ > exhaustion::view().faults && !now.sticky))
    violation("%s: threw std::bad_alloc without a fault", what);
}

bool Checker::goes_on(const char* what, const Snapshot& before, const StandinView& then,
                      long calls_before) {
  const exhaustion::Pause pause;
  compare(what, before, then);
  if (!sound() || violations_ > 20) return false;
  if (!exhaustion::is_planned()) return true;
  watch_blocks(what);
  // The same call of the repeated attempt fails, if it comes again: what the library keeps for
  // reuse may have made it needless.
  if (repeated_ < (blocks_always_grew_ ? repeated_faults_while_growing : repeated_faults))
    exhaustion::plan_again(exhaustion::calls() - calls_before);
  ++repeated_;
  return true;
}

void Checker::watch_blocks(const char* what) {
  const size_t blocks = exhaustion::view().blocks;
  if (repeated_ > 1) blocks_always_grew_ = blocks_always_grew_ && blocks > blocks_;
  if (repeated_ == 0) first_blocks_ = blocks;
  blocks_ = blocks;
  if (repeated_ < repeated_faults_while_growing || !blocks_always_grew_) return;
  // What an operation had enqueued before it failed may be pending, and gives its blocks back.
  const auto are_few = [&] {
    return exhaustion::view().blocks < first_blocks_ + repeated_faults_while_growing / 2;
  };
  if (!eventually(are_few))
    violation("%s: leaves memory behind each time it fails, %zu blocks", what, blocks);
}

void Checker::compare(const char* what, const Snapshot& before, const StandinView& then) {
  // Host functions of earlier calls may finish meanwhile, so their number may be smaller.
  const auto counts = [&] { return live_objects(); };
  LiveObjects after = counts();
  const bool is_discarded_later = enqueues_several && !sound();
  // While one runs of which the trace is told, the library counts its own call of it, too: the
  // gate's may have begun meanwhile.
  const size_t allowed = before.live.host_functions + (traces_ ? 1 : 0);
  if (!is_discarded_later &&
      !eventually([&] { return (after = counts()).host_functions <= allowed; }))
    violation("%s: a host function that the stream did not take is alive", what);
  if (communicates_)
    static_cast<void>(eventually([&] {
      after = counts();
      return after.streams <= before.live.streams &&
             after.device_blocks <= before.live.device_blocks &&
             after.events <= before.live.events + batons_;
    }));
  const auto same = [&](const char* name, size_t found, size_t now) {
    const bool is_less =
        communicates_ &&
        now <= found + kept_communicators() + (std::string_view{name} == "events" ? batons_ : 0);
    if (found != now && !is_less) violation("%s: %zu %s before, %zu after", what, found, name, now);
  };
  same("streams", before.live.streams, after.streams);
  same("events", before.live.events, after.events);
  // A communicator keeps the pinned memory that its first operation needs.
  if (!communicates_) same("pinned blocks", before.live.pinned_blocks, after.pinned_blocks);
  same("device blocks", before.live.device_blocks, after.device_blocks);
  // Graphs that were dropped earlier are destroyed by any later call.
  const auto no_more = [&](const char* name, size_t found, size_t later) {
    if (later > found && !view().fault_in_release && sound())
      violation("%s: %zu %s before, %zu after", what, found, name, later);
  };
  no_more("graphs", then.graphs, view().graphs);
  no_more("executable graphs", then.executable_graphs, view().executable_graphs);
  const Snapshot now = snapshot();
  // If no call works any more, the library cannot restore the device.
  if (sound() && now.device != before.device)
    violation("%s: device %d was current, now %d", what, before.device, now.device);
  if ((inspect_ == nullptr || then.calls > 0) && now.stream != before.stream && before.stream != 0)
    violation("%s: another stream is current", what);
  if (sound() && now.capture_mode != before.capture_mode)
    violation("%s: the capture mode was not restored", what);
  if (sound() && now.last_error != before.last_error)
    violation("%s: last error %d left behind", what, now.last_error);
}

/// A fault that is not reported to the caller must not change anything for the caller.
void Checker::absorbed(const char* what, const StandinView& now) {
  ++absorbed_;
  seen_ = what;
  // the library had another way; the later checks show whether it was a right one
  if (exhaustion::is_planned()) return;
  if (now.sticky) return;  // the next call reports the error
  if (fails_ccl_) {
    const std::string_view name = now.fault_call;
    // Operations fail later. Threads that look after communicators destroy and abort them, and look
    // for errors of operations.
    const bool is_later = name == "an operation" || name == "ncclCommDestroy" ||
                          name == "ncclCommAbort" || name == "ncclCommGetAsyncError";
    if (!is_later && !(aborts && name.find("ncclGroup") == 0))
      violation("%s: succeeded although the library returned %d", what, fault_.code);
    return;
  }
  const std::string_view call = now.fault_call, during = what;
  const auto is_in = [&](const char* text) { return during.find(text) != during.npos; };
  const bool overlaps = during.find("overlap") == 0, updates = is_in("update(");
  // The device has no pools, so that calls may free memory after waiting for it.
  const char* const pools = std::getenv("STANDIN_POOLS");
  const bool frees = pools != nullptr && *pools == '0';
  struct Excuse {
    bool applies;
    std::vector<const char*> calls;  // the ends of their names
  };
  const Excuse excuses[] = {
      // The pinned pool looks for blocks that streams no longer use. It skips a block that it
      // cannot query, and takes another one.
      {is_in("Pinned") || is_in("fill, 12 bytes") || is_in("overlap, ") ||
           (copies_through_pool && (is_in("copy") || is_in("get("))),
       {"EventQuery", "GetDevice", "EventRecord", "EventCreateWithFlags", "StreamIsCapturing",
        "StreamQuery"}},
      // Out of memory: retried after freeing what is kept for reuse. overlap() retries, with less
      // memory if its sizes are open. Without memory pools an allocation waits for frees that are
      // under way, and is tried again.
      {fault_.code == 2, {"HostAlloc", "HostMalloc"}},
      {fault_.code == 2 && overlaps, {"MallocFromPoolAsync"}},
      {fault_.code == 2 && (overlaps || frees), {"Malloc"}},
      // overlap() waits for the chunks in flight after a failure, and waits again if that fails.
      {is_in("overlap, the function fails"), {"StreamSynchronize", "StreamIsCapturing"}},
      // Without memory pools a thread of the library frees memory after its streams' events.
      // Without an event, another thread waits for the devices.
      {frees, {"EventCreateWithFlags", "EventRecord", "StreamIsCapturing", "DeviceSynchronize"}},
      // update() drops the graph's old work, which may be under way: it is destroyed on another
      // stream, or after a wait for the device. Threads that look after communicators free memory
      // in the same ways; an operation whose end could not be recorded is waited for in another
      // way.
      {updates || communicates_,
       {"StreamCreateWithPriority", "StreamIsCapturing", "EventCreateWithFlags", "EventRecord",
        "StreamWaitEvent", "LaunchHostFunc", "StreamAddCallback", "StreamQuery"}},
      // AMD's launches are marked by an event. Without it, the next launch waits for more, or for
      // the device.
      {is_in("->launch("), {"EventCreateWithFlags", "EventRecord", "StreamWaitEvent"}},
      // So are those of a graph whose handle was given out. Without the function behind a launch
      // its runs end with the graph.
      {is_in("marked->launch("), {"StreamIsCapturing", "LaunchHostFunc"}},
      // AMD's captures are prepared for their end (backends/hip/captures.hpp), which is tried
      // again.
      {updates || is_in("capture("), {"GraphGetNodes", "GraphNodeGetDependentNodes"}},
      {is_in("thread_default"), {"StreamGetPriority"}},  // called for its side effect
      // The service thread queries and records again, and frees in another way. A stream that it
      // cannot ask counts as idle.
      {now.fault_elsewhere,
       {"StreamQuery", "StreamIsCapturing", "EventQuery", "EventCreateWithFlags", "EventRecord",
        "StreamCreateWithPriority"}},
      {watches || communicates_, {"EventQuery"}},
      {waits_outside_ && is_in("wait_"),
       {"StreamIsCapturing", "EventCreateWithFlags", "EventRecord", "EventQuery"}},
      // trim() frees what streams no longer use, as far as it can ask them, on a stream for that.
      {is_in("}.trim()") || is_in("DeviceResource::trim"),
       {"EventQuery", "StreamQuery", "StreamCreateWithPriority"}},
      // The function's own exception goes before what becomes of the start.
      {is_in("chain that throws"), {""}},
      // The stream between the two devices is destroyed all the same.
      {is_in("wait_event from another device"), {"GetDevice"}},
      // Pinned memory of a few MiB that cannot be registered is allocated. Read-only pages that
      // cannot be registered are registered for reading.
      {during != "HostRegistration", {"HostRegister"}},
      // At the end a communicator's thread may still be in its call, while this thread trims.
      {communicates_ && is_in("::trim"), {"GetDevice"}},
      // The end of the scenario's abort, which looks for the streams' errors.
      {during == "abort", {"StreamSynchronize"}},
      // Without an answer the trace has a gap.
      {traces_,
       {"StreamQuery", "EventCreateWithFlags", "EventRecord", "EventSynchronize", "EventQuery",
        "ElapsedTime", "StreamIsCapturing", "GetCaptureInfo_v2", "StreamCreateWithPriority"}},
      // Functions that are looked up in the driver. The runtime's are called instead.
      {call.find("cu") == 0 && call.find("cuda") != 0,
       {"cuStreamQuery", "cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamIsCapturing",
        "cuLaunchHostFunc", "cuEventRecord", "cuEventQuery", "cuEventSynchronize",
        "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemcpyAsync", "cuMemsetD8Async",
        "cuPointerGetAttributes", "CtxGetCurrent"}},
      // "Not ready" is a valid answer.
      {fault_.code == 600, {"Query"}},
      // Before HIP 5.5 the first question comes before an allocation, which overlap() tries again,
      // and before a free, which goes on. The others restore the device and the capture mode, and
      // end a capture, which is tried again, and count the devices again, to find the reason for
      // zero.
      {true,
       {"StreamGetCaptureInfo_v2", "SetDevice", "CaptureMode", "EndCapture", "GetDeviceCount"}},
      // The library then takes the current device from the runtime.
      {call.find("PrimaryCtx") != call.npos, {""}},
      {now.fault_in_release, {""}},  // the owner has given up the object
      {fault_.code == 201, {""}},    // "no context": the driver's functions are called again
  };
  const bool harmless =
      std::any_of(std::begin(excuses), std::end(excuses), [&](const Excuse& excuse) {
        return excuse.applies &&
               std::any_of(excuse.calls.begin(), excuse.calls.end(),
                           [&](const char* each) { return ends_with(call, each); });
      });
  if (!harmless) violation("%s: succeeded although the runtime returned %d", what, fault_.code);
  if (now.last_error != 0) violation("%s: last error %d left behind", what, now.last_error);
}

/// The host backend's own count of device memory. On a stand-in the blocks are counted.
void Checker::check_device_memory() {
  if (inspect_ != nullptr) return;
  for (int i : range(Device::count())) {
    const Device device{i};
    static_cast<void>(is_done("DeviceBuffer at the end",
                              [&] { const DeviceBuffer<int> buffer{1, device.default_stream()}; }));
    const exhaustion::Pause pause;
    device.synchronize();
    const auto used = [&] { return device.memory_info().total - device.memory_info().free; };
    const auto is_unused = [&] {
      // This allocation frees the blocks whose free could not be enqueued.
      static_cast<void>(DeviceBuffer<int>{1, device.default_stream()});
      device.synchronize();
      DeviceResource{device}.trim();  // gives blocks back to resources of the scenario's
      return used() == 0;
    };
    if (!eventually(is_unused)) violation("device %d still has %zu bytes in use", i, used());
  }
}

size_t Checker::kept_communicators() const {
  return communicates_ && (!sound() || exhaustion::is_planned()) ? kept_streams : 0;
}

void Checker::check_communicators() {
  if (exhaustion::is_planned() || (fault_.form != "none" && !fails_ccl_)) return;
  const StandinCclView now = ccl_view();
  const size_t allowed = std::string_view{now.fault_call} == "ncclCommDestroy" ? 1 : 0;
  if (!eventually([&] { return ccl_view().communicators <= allowed; }))
    violation("the library still has %zu communicators", ccl_view().communicators);
  if (fails_ccl_ && std::string_view{now.fault_call} == "an operation" && thrown_ == 0 && !is_told)
    violation("an operation has failed, and nobody was told");
}

void Checker::finish() {
  // Threads give up what communicators had.
  if (communicates_)
    static_cast<void>(eventually([&] {
      const LiveObjects live = live_objects();
      return live.streams <= kept_communicators() &&
             live.events <= batons_ + 2 * kept_communicators() && live.pinned_blocks == 0;
    }));
  check_communicators();
  // The service thread gives back what other streams used.
  if (!view().sticky)
    static_cast<void>(eventually([&] { return live_objects().device_blocks == 0; }));
  // Freeing pinned blocks returns the events that guard their reuse.
  static_cast<void>(is_done("PinnedPool::trim", [] {
    for (int i : range(Device::count())) Device{i}.synchronize();
    Staging::trim();
    PinnedPool::trim();
  }));
  // So is device memory whose free waits for a stream.
  static_cast<void>(is_done("DeviceResource::trim", [] {
    for (int i : range(Device::count())) DeviceResource{Device{i}}.trim();
  }));
  const StandinView now = view();
  check_device_memory();
  // What a graph keeps is kept for ever if its launches may not be complete and never will be.
  const int callables = now.sticky ? kept_objects : 0;
  if (!eventually(
          [&] { return live_objects().host_functions == 0 && Callable::alive() <= callables; }))
    violation("%d callables were never destroyed, the library counts %zu", Callable::alive().load(),
              live_objects().host_functions);
  const LiveObjects live = live_objects();
  const size_t kept = kept_communicators();
  const size_t counted_blocks =
      now.sticky || expected(fault_.code) == errc::capture ? kept_blocks : 0;
  if (live.streams > kept || live.events > batons_ + 2 * kept || live.pinned_blocks != 0 ||
      live.device_blocks > counted_blocks + kept)
    violation("still alive: %zu streams, %zu events, %zu pinned, %zu device blocks", live.streams,
              live.events, live.pinned_blocks, live.device_blocks);
  // After a refused destruction the object stays with the runtime. Repeating the call could destroy
  // a new object with the same handle. Without a context (201) the stand-in destroys nothing,
  // whatever the form.
  const auto allowed_by = [&](const StandinView& seen) -> size_t {
    return seen.fault_in_release && (fault_.form == "refused" || fault_.code == 201) ? 1 : 0;
  };
  const size_t allowed = allowed_by(now);
  // An error of a capture shows the library that the process captures streams, so that it must wait
  // for no device. Then it leaks a block if it cannot know when the block's streams are complete.
  const size_t of_capture = expected(fault_.code) == errc::capture ? 1 : 0;
  // Memory freed in stream order is released when the stream reaches the free, and a thread of the
  // library may release a block, and meet the fault, only now.
  const auto are_released = [&] {
    const StandinView last = view();
    return last.device_blocks <= std::max(of_capture, allowed_by(last)) + kept;
  };
  if (!now.sticky && !eventually(are_released))
    violation("the runtime still has %zu device blocks", view().device_blocks);
  // a runtime without a context for good
  const bool releases_nothing = now.sticky && fault_.code == 201;
  if (!releases_nothing && now.streams > kept_streams + allowed)
    violation("the runtime still has %zu streams", now.streams);
  // A graph that is dropped in a host function is destroyed later; without memory to note that, it
  // is leaked.
  const auto are_graphs_destroyed = [&] {
    const StandinView last = view();
    const size_t left = exhaustion::is_planned() ? 1 : allowed_by(last);
    return last.graphs <= left && last.executable_graphs <= left;
  };
  if (!now.sticky && !eventually(are_graphs_destroyed))
    violation("the runtime still has %zu graphs and %zu executable graphs", view().graphs,
              view().executable_graphs);
  // Blocks whose use can no longer be queried keep the events of up to two streams.
  const auto known = [&] {
    return live_objects().pooled_events + batons_ + kept_events +
           2 * PinnedPool::statistics().cached_blocks;
  };
  // The trace keeps events until it is written after the work behind them is complete.
  if (traces_)
    static_cast<void>(
        eventually([&] { return Trace::write(), view().events <= known() + allowed; }));
  if (!releases_nothing && !eventually([&] { return view().events <= known() + allowed; }))
    violation("the runtime has %zu events, the library knows of %zu", view().events, known());
}

int Checker::report(const char* scenario) const {
  const StandinView now = view();
  const exhaustion::View made = exhaustion::view();
  const StandinCclView ccl = ccl_view();
  std::printf(
      "%s: %s; %ld calls, %ld calls, %ld queries and %ld operations of collectives, %ld "
      "allocations, %ld thread starts, "
      "keeps %zu streams, fault in %s (%s, %d), %d thrown, %d absorbed%s%s\n",
      scenario, violations_ == 0 ? "sound" : "UNSOUND", now.calls, ccl.calls, ccl.queries,
      ccl.operations, made.allocations, made.threads, kept_streams,
      now.faulted ? now.fault_call : "none", fault_.form.c_str(), fault_.code, thrown_, absorbed_,
      seen_.empty() ? "" : ": ", seen_.c_str());
  return violations_ == 0 ? 0 : 1;
}

}  // namespace sweep
