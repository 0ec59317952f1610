// SPDX-License-Identifier: Apache-2.0
#include "checker.hpp"

#include <algorithm>
#include <string_view>

namespace sweep {
using namespace runnel;

namespace {

/// Written apart from the library's own table, so that a slip in it is seen.
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
    default:
      return 900 <= code && code <= 908 ? errc::capture : errc::unknown;
  }
}

[[nodiscard]] bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

Checker::Checker() : inspect_{reinterpret_cast<void (*)(StandinView*)>(dlsym(RTLD_DEFAULT, "standin_inspect"))} {
  if (inspect_ == nullptr) {
    std::printf("not on a stand-in runtime: nothing can be made to fail\n");
    std::exit(77);
  }
  const char* const text = std::getenv("STANDIN_FAULT");
  char form[16] = {};
  long call = 0;
  if (text != nullptr && std::sscanf(text, "call=%ld;form=%15[a-z];code=%d", &call, form, &fault_.code) == 3) fault_.form = form;
}

StandinView Checker::view() const {
  StandinView view{};
  inspect_(&view);
  return view;
}

Checker::Snapshot Checker::snapshot() const {
  const StandinView now = view();
  // Once a stream is set, asking makes no runtime call; before that the first attempt of every scenario sets one.
  return {live_objects(), now.device, now.calls == 0 ? 0 : runnel::detail::current.id, now.last_error, now.capture_mode};
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
  if (!now.faulted) violation("%s: threw without a fault: %s", what, error.what());
  if (!now.sticky && thrown_ > 1) violation("%s: one fault, and a second exception: %s", what, error.what());
  // That there is no device is said in words, with the number in them; that the time is not there yet, in words alone.
  const bool no_device = ends_with(now.fault_call, "GetDeviceCount") && expected(fault_.code) == errc::no_device &&
                         std::strstr(error.what(), std::to_string(fault_.code).c_str()) != nullptr;
  const bool in_words = no_device || (fault_.code == 600 && ends_with(now.fault_call, "ElapsedTime"));
  // HIP 5's call answers -1 and no more, which the library takes for a bad handle.
  if (ends_with(now.fault_call, "GetStreamDeviceId") && error.native_code() == 400) return;
  if (error.native_code() != (in_words ? 0 : fault_.code))
    violation("%s: native code %d instead of %d: %s", what, error.native_code(), fault_.code, error.what());
  if (error.code() != expected(fault_.code)) violation("%s: code %d does not follow from %d", what, error.code().value(), fault_.code);
  if (std::strlen(error.operation()) < 4 || std::strstr(error.what(), error.operation()) == nullptr)
    violation("%s: the text lacks the operation: %s", what, error.what());
  if (!in_words && std::strlen(error.native_name()) == 0) violation("%s: no native name", what);
}

void Checker::compare(const char* what, const Snapshot& before, const StandinView& then) {
  // Host functions of earlier calls go on meanwhile: of those there may be fewer.
  const auto counts = [&] { return live_objects(); };
  LiveObjects after = counts();
  if (!eventually([&] { return (after = counts()).host_functions <= before.live.host_functions; }))
    violation("%s: a host function that the stream did not take is alive", what);
  const auto same = [&](const char* name, std::size_t found, std::size_t now) {
    if (found != now) violation("%s: %zu %s before, %zu after", what, found, name, now);
  };
  same("streams", before.live.streams, after.streams);
  same("events", before.live.events, after.events);
  same("pinned blocks", before.live.pinned_blocks, after.pinned_blocks);
  same("device blocks", before.live.device_blocks, after.device_blocks);
  const Snapshot now = snapshot();
  // Where no call works any more, the device cannot be set back either.
  if (sound() && now.device != before.device) violation("%s: device %d was current, now %d", what, before.device, now.device);
  if (then.calls > 0 && now.stream != before.stream && before.stream != 0) violation("%s: another stream is current", what);
  if (sound() && now.capture_mode != before.capture_mode) violation("%s: another capture mode is left behind", what);
  if (sound() && now.last_error != before.last_error) violation("%s: last error %d left behind", what, now.last_error);
}

/// A fault that no caller hears of must be one that changes nothing for him.
void Checker::absorbed(const char* what, const StandinView& now) {
  ++absorbed_;
  seen_ = what;
  if (now.sticky) return;  // the next call says so
  const std::string_view call = now.fault_call;
  const bool is_query = ends_with(call, "Query");
  // The pinned pool looks for blocks that streams have passed. One that cannot be asked about stays where it is, and another is taken.
  const std::string_view during = what;
  const bool looks_around = during.find("PinnedBuffer") != during.npos || during == "trim_pinned" || during == "fill, 12 bytes" ||
                            during.find("overlap, ") != during.npos;
  const bool is_look = looks_around && (ends_with(call, "EventQuery") || ends_with(call, "GetDevice") || ends_with(call, "EventRecord") ||
                                        ends_with(call, "EventCreateWithFlags") || ends_with(call, "StreamIsCapturing"));
  const bool overlaps = during.find("overlap") == 0;  // it allocates again, less where its sizes are open
  const bool is_full = fault_.code == 2 && (ends_with(call, "HostAlloc") || ends_with(call, "HostMalloc") ||
                                            (overlaps && (ends_with(call, "MallocAsync") || ends_with(call, "Malloc"))));
  // What was in flight when something else failed is waited for, and again if that fails.
  const bool waits_again =
      during == "overlap, the function fails" && (ends_with(call, "StreamSynchronize") || ends_with(call, "StreamIsCapturing"));
  const bool is_first_use = during == "per_thread_default" && ends_with(call, "StreamGetPriority");  // asked for its side effect
  const bool harmless = is_first_use || waits_again || is_look || is_full  // no memory: asked again once what is kept for later is freed
                        || ends_with(call, "SetDevice")                    // setting back, which is tried again
                        || ends_with(call, "CaptureMode")                  // likewise
                        || ends_with(call, "GetDeviceCount")               // counted again, to say why there is none
                        || now.fault_in_release                            // the object is gone for its owner
                        || (is_query && fault_.code == 600)                // not ready is an answer
                        || fault_.code == 201;                             // "no context yet" makes the driver's functions start again
  if (!harmless) violation("%s: went well although the runtime said %d", what, fault_.code);
  if (now.last_error != 0) violation("%s: last error %d left behind", what, now.last_error);
}

void Checker::finish() {
  // Pinned blocks that streams have passed give back the events that say so.
  static_cast<void>(attempt("trim_pinned", [] {
    for (int i = 0; i < Device::count(); ++i) Device{i}.synchronize();
    trim_staging();
    trim_pinned();
  }));
  const StandinView now = view();
  if (!eventually([] { return live_objects().host_functions == 0 && Callable::alive() == 0; }))
    violation("%d callables were never destroyed, the library counts %zu", Callable::alive().load(), live_objects().host_functions);
  const LiveObjects live = live_objects();
  if (live.streams != 0 || live.events != 0 || live.pinned_blocks != 0 || live.device_blocks != 0)
    violation("left: %zu streams, %zu events, %zu pinned, %zu device blocks", live.streams, live.events, live.pinned_blocks,
              live.device_blocks);
  // A refused destruction leaves the object with the runtime, and nobody could do more: asking again might destroy a successor.
  const std::size_t allowed = now.fault_in_release && fault_.form == "refused" ? 1 : 0;
  // What is freed in stream order goes when the stream comes to it.
  if (!now.sticky && !eventually([&] { return view().device_blocks <= allowed; }))
    violation("the runtime still has %zu device blocks", view().device_blocks);
  if (now.streams > kept_streams_ + allowed) violation("the runtime still has %zu streams", now.streams);
  // Blocks that nobody can ask about any more keep the events of up to two streams.
  const std::size_t known = live_objects().pooled_events + kept_events_ + 2 * pinned_statistics().cached_blocks;
  if (view().events > known + allowed) violation("the runtime has %zu events, the library knows of %zu", view().events, known);
}

int Checker::report(const char* scenario) const {
  const StandinView now = view();
  std::printf("%s: %s; %ld calls, keeps %zu streams, fault in %s (%s, %d), %d thrown, %d absorbed%s%s\n", scenario,
              violations_ == 0 ? "sound" : "UNSOUND", now.calls, kept_streams_, now.faulted ? now.fault_call : "none", fault_.form.c_str(),
              fault_.code, thrown_, absorbed_, seen_.empty() ? "" : ": ", seen_.c_str());
  return violations_ == 0 ? 0 : 1;
}

}  // namespace sweep
