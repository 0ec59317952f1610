// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "calls.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

int submit_host_function(Stream& stream, std::function<void()> function,
                         void (*called)(void*) = nullptr, void* data = nullptr) {
  engine().submit(stream, operation_of({.kind = Kind::host_function,
                                        .run = std::move(function),
                                        .opaque = true,
                                        .function = called,
                                        .data = data}));
  return ok;
}

}  // namespace

namespace {
std::mutex queried_mutex;
// never destroyed: threads may call while the process exits
auto& queried = *new std::vector<StreamHandle>;
}  // namespace

Queried::Queried(StreamHandle stream) : stream_{stream} {
  {
    const std::lock_guard lock{queried_mutex};
    queried.push_back(stream_);
  }
  // so that another thread has a chance to come
  if (settings().queries_crash) std::this_thread::yield();
}

Queried::~Queried() {
  const std::lock_guard lock{queried_mutex};
  queried.erase(std::ranges::find(queried, stream_));
}

void Queried::refuse(StreamHandle stream) {
  if (!settings().queries_crash) return;
  const std::lock_guard lock{queried_mutex};
  if (std::ranges::find(queried, stream) == queried.end() || is_per_thread(stream)) return;
  std::fputs(
      "stand-in: a stream is queried while a capture of it begins or ends: NVIDIA's driver crashes "
      "here\n",
      stderr);
  std::abort();
}

extern "C" {

Error API(StreamCreateWithPriority)(StreamHandle* handle, unsigned int flags, int priority) {
  return call(Call::makes, [&] {
    if (handle == nullptr || flags > 1) return invalid_value;
    const Settings& s = settings();
    const int given = std::clamp(priority, s.greatest_priority, s.least_priority);
    State& now = state();
    *handle = now.streams.add(now.make_stream(
        this_thread().device, flags == 1 ? StreamKind::independent : StreamKind::blocking, given));
    return ok;
  });
}

#ifndef STANDIN_CUDA
// The stream orders with the default stream, and has normal priority.
hipError_t hipExtStreamCreateWithCUMask(hipStream_t* handle, uint32_t size, const uint32_t* mask) {
  return call(Call::makes, [&] {
    const bool is_empty =
        mask == nullptr || std::all_of(mask, mask + size, [](uint32_t word) { return word == 0; });
    if (handle == nullptr || is_empty) return invalid_value;
    State& now = state();
    *handle = now.streams.add(now.make_stream(this_thread().device, StreamKind::blocking, 0));
    return ok;
  });
}
#endif

// The operations of a destroyed stream continue.
Error API(StreamDestroy)(StreamHandle handle) {
  return call(Call::releases, [&] {
    const StreamPtr stream = state().streams.find(handle);
    if (stream == nullptr) return invalid_handle;
    break_capture_without(*stream);
    state().streams.remove(handle);
    return ok;
  });
}

// A query that returns "not ready" demands the work, so that a program that polls makes progress.
Error API(StreamQuery)(StreamHandle handle) {
  const Queried now{handle};
  return call_outside_captures(
      Call::plain, on_stream(handle, [](Stream& stream) {
        if (const CapturePtr capture = captured_beside(stream))
          return break_capture(*capture, capture_implicit);
        if (stream.kind == StreamKind::legacy) {
          for (const OperationPtr& last : engine().legacy_tails(stream.device))
            engine().demand(last);
          return engine().legacy_is_idle(stream.device) ? ok : not_ready;
        }
        if (stream.capturing()) return break_capture(*stream.capture, capture_unsupported);
        engine().demand(stream.last);
        const OperationPtr last = stream.own_last();
        return last == nullptr || last->done ? ok : not_ready;
      }));
}

Error API(StreamSynchronize)(StreamHandle handle) {
  return call_outside_captures(
      Call::plain, on_stream(handle, [](Stream& stream, Lock& lock) {
        if (const CapturePtr capture = captured_beside(stream))
          return break_capture(*capture, capture_implicit);
        if (stream.kind == StreamKind::legacy) {
          for (const OperationPtr& last : engine().legacy_tails(stream.device))
            engine().wait(lock, last);
        } else {
          if (stream.capturing()) return break_capture(*stream.capture, capture_unsupported);
          engine().wait(lock, stream.own_last());
        }
        state().trim_pools();
        return ok;
      }));
}

Error API(StreamGetPriority)(StreamHandle handle, int* priority) {
  return call(on_stream(handle, [=](Stream& stream) {
    // Seen on an H100, driver 580, CUDA 13.0.
    if (const CapturePtr capture = captured_beside(stream))
      return break_capture(*capture, capture_implicit);
    *priority = stream.priority;
    return ok;
  }));
}

Error API(StreamGetFlags)(StreamHandle handle, unsigned int* flags) {
  return call(on_stream(handle, [=](Stream& stream) {
    if (handle == nullptr && !vendor::null_stream_has_flags) return invalid_value;
    if (vendor::flags_break_capture && stream.capturing())
      return break_capture(*stream.capture, capture_unsupported);
    *flags = stream.kind == StreamKind::independent ? 1 : 0;
    return ok;
  }));
}

Error API(LaunchHostFunc)(StreamHandle handle, API(HostFn_t) function, void* data) {
  return call(Call::makes, work_on(handle, [=](Stream& stream) {
                if (function == nullptr) return invalid_value;
                return submit_host_function(stream, [=] { function(data); }, function, data);
              }));
}

#if defined STANDIN_CUDA ? CUDART_VERSION >= 12080 : HIP_VERSION >= 60000000
Error API(StreamGetDevice)(StreamHandle handle, int* device) {
  return call(on_stream(handle, [=](Stream& stream) {
    if (vendor::flags_break_capture && stream.capturing())
      return break_capture(*stream.capture, capture_unsupported);
    *device = stream.device;
    return ok;
  }));
}
#endif

#ifdef STANDIN_HIP

hipError_t hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t function, void* data,
                                unsigned int flags) {
  return call(Call::makes, work_on(handle, [=](Stream& stream) {
                if (function == nullptr || flags != 0) return invalid_value;
                // AMD's runtime does not capture this call, but runs it at once (5.2).
                if (stream.capturing()) return capture_unsupported;
                return submit_host_function(stream, [=] { function(handle, hipSuccess, data); });
              }));
}

#if HIP_VERSION < 60000000
int hipGetStreamDeviceId(hipStream_t handle) {
  int device = -1;
  const int last_error = this_thread().last_error;
  const hipError_t e =
      call(on_stream(handle, [&](Stream& stream) { return device = stream.device, ok; }));
  this_thread().last_error = last_error;  // this function never sets the last error
  return e == hipSuccess ? device : -1;
}
#endif

#endif

}  // extern "C"
