// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

int submit_host_function(vendor::StreamHandle handle, std::function<void()> function,
                         void (*called)(void*) = nullptr, void* data = nullptr) {
  const StreamPtr stream = state().stream(handle);
  if (stream == nullptr) return vendor::invalid_handle;
  if (const vendor::Code code = refusal(*stream)) return code;
  auto operation = std::make_shared<Operation>();
  operation->kind = Kind::host_function;
  operation->run = std::move(function);
  operation->opaque = true;
  operation->function = called;
  operation->data = data;
  engine().submit(*stream, std::move(operation));
  return vendor::ok;
}

}  // namespace

int standin::device_of(vendor::StreamHandle handle, int& device) {
  const StreamPtr stream = state().stream(handle);
  if (stream == nullptr) return vendor::invalid_handle;
  device = stream->device;
  return vendor::ok;
}

namespace {
std::mutex queried_mutex;
// never destroyed: threads may call while the process exits
auto& queried = *new std::vector<vendor::StreamHandle>;
}  // namespace

Queried::Queried(vendor::StreamHandle stream) : stream_{stream} {
  {
    const std::lock_guard lock{queried_mutex};
    queried.push_back(stream_);
  }
  // so that another thread has a chance to come
  if (settings().queries_crash) std::this_thread::yield();
}

Queried::~Queried() {
  const std::lock_guard lock{queried_mutex};
  queried.erase(std::find(queried.begin(), queried.end(), stream_));
}

void Queried::refuse(vendor::StreamHandle stream) {
  if (!settings().queries_crash) return;
  const std::lock_guard lock{queried_mutex};
  if (std::find(queried.begin(), queried.end(), stream) == queried.end() || is_per_thread(stream))
    return;
  std::fputs(
      "stand-in: a stream is queried while a capture of it begins or ends: NVIDIA's driver crashes "
      "here\n",
      stderr);
  std::abort();
}

extern "C" {

vendor::Error API(StreamCreateWithPriority)(vendor::StreamHandle* handle, unsigned int flags,
                                            int priority) {
  return call(Call::makes, [&](Lock&) {
    if (handle == nullptr || flags > 1) return vendor::invalid_value;
    const Settings& s = settings();
    const int given = std::clamp(priority, s.greatest_priority, s.least_priority);
    State& now = state();
    *handle = reinterpret_cast<vendor::StreamHandle>(now.streams.add(now.make_stream(
        this_thread().device, flags == 1 ? StreamKind::independent : StreamKind::blocking, given)));
    return vendor::ok;
  });
}

#ifndef STANDIN_CUDA
// The stream orders with the default stream, and has normal priority.
hipError_t hipExtStreamCreateWithCUMask(hipStream_t* handle, std::uint32_t size,
                                        const std::uint32_t* mask) {
  return call(Call::makes, [&](Lock&) {
    const bool is_empty = mask == nullptr || std::all_of(mask, mask + size, [](std::uint32_t word) {
                            return word == 0;
                          });
    if (handle == nullptr || is_empty) return vendor::invalid_value;
    State& now = state();
    *handle = reinterpret_cast<hipStream_t>(
        now.streams.add(now.make_stream(this_thread().device, StreamKind::blocking, 0)));
    return vendor::ok;
  });
}
#endif

// The operations of a destroyed stream continue.
vendor::Error API(StreamDestroy)(vendor::StreamHandle handle) {
  return call(Call::releases, [&](Lock&) {
    State& now = state();
    const StreamPtr stream = now.streams.find(reinterpret_cast<std::uintptr_t>(handle), now.misuse);
    if (stream == nullptr) return vendor::invalid_handle;
    break_capture_without(*stream);
    now.streams.remove(reinterpret_cast<std::uintptr_t>(handle), now.misuse);
    return vendor::ok;
  });
}

// A query that returns "not ready" demands the work, so that a program that polls makes progress.
vendor::Error API(StreamQuery)(vendor::StreamHandle handle) {
  const Queried now{handle};
  return call_outside_captures(Call::plain, [&](Lock&) -> int {
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return vendor::invalid_handle;
    if (const CapturePtr capture = captured_beside(*stream))
      return break_capture(*capture, vendor::capture_implicit);
    if (stream->kind == StreamKind::legacy) {
      for (const OperationPtr& last : engine().legacy_tails(stream->device)) engine().demand(last);
      return engine().legacy_is_idle(stream->device) ? vendor::ok : vendor::not_ready;
    }
    if (stream->capturing()) return break_capture(*stream->capture, vendor::capture_unsupported);
    engine().demand(stream->last);
    const OperationPtr last = stream->own_last();
    return last == nullptr || last->done ? vendor::ok : vendor::not_ready;
  });
}

vendor::Error API(StreamSynchronize)(vendor::StreamHandle handle) {
  return call_outside_captures(Call::plain, [&](Lock& lock) -> int {
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return vendor::invalid_handle;
    if (const CapturePtr capture = captured_beside(*stream))
      return break_capture(*capture, vendor::capture_implicit);
    if (stream->kind == StreamKind::legacy) {
      for (const OperationPtr& last : engine().legacy_tails(stream->device))
        engine().wait(lock, last);
    } else {
      if (stream->capturing()) return break_capture(*stream->capture, vendor::capture_unsupported);
      engine().wait(lock, stream->own_last());
    }
    return vendor::ok;
  });
}

vendor::Error API(StreamGetPriority)(vendor::StreamHandle handle, int* priority) {
  return call([&](Lock&) {
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return vendor::invalid_handle;
    // Seen on an H100, driver 580, CUDA 13.0.
    if (const CapturePtr capture = captured_beside(*stream))
      return break_capture(*capture, vendor::capture_implicit);
    *priority = stream->priority;
    return vendor::ok;
  });
}

vendor::Error API(StreamGetFlags)(vendor::StreamHandle handle, unsigned int* flags) {
  return call([&](Lock&) {
    if (handle == nullptr && !vendor::null_stream_has_flags) return vendor::invalid_value;
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return vendor::invalid_handle;
    if (vendor::flags_break_capture && stream->capturing())
      return break_capture(*stream->capture, vendor::capture_unsupported);
    *flags = stream->kind == StreamKind::independent ? 1 : 0;
    return vendor::ok;
  });
}

#ifdef STANDIN_CUDA

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call(Call::makes, [&](Lock&) -> int {
    if (function == nullptr) return vendor::invalid_value;
    return submit_host_function(handle, [function, data] { function(data); }, function, data);
  });
}

#if CUDART_VERSION >= 12080
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return call([&](Lock&) -> int {
    const StreamPtr stream = state().stream(handle);
    if (stream != nullptr && stream->capturing())
      return break_capture(*stream->capture, vendor::capture_unsupported);
    return device_of(handle, *device);
  });
}
#endif

#else

hipError_t hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t function, void* data,
                                unsigned int flags) {
  return call(Call::makes, [&](Lock&) -> int {
    if (function == nullptr || flags != 0) return vendor::invalid_value;
    const StreamPtr stream = state().stream(handle);
    // AMD's runtime does not capture this call, but runs it at once (5.2).
    if (stream != nullptr && stream->capturing()) return vendor::capture_unsupported;
    return submit_host_function(handle, [=] { function(handle, hipSuccess, data); });
  });
}

hipError_t hipLaunchHostFunc(hipStream_t handle, hipHostFn_t function, void* data) {
  return call(Call::makes, [&](Lock&) -> int {
    if (function == nullptr) return vendor::invalid_value;
    return submit_host_function(handle, [function, data] { function(data); }, function, data);
  });
}

#if HIP_VERSION >= 60000000
hipError_t hipStreamGetDevice(hipStream_t handle, hipDevice_t* device) {
  return call([&](Lock&) { return device_of(handle, *device); });
}
#else
int hipGetStreamDeviceId(hipStream_t handle) {
  int device = -1;
  const int last_error = this_thread().last_error;
  const hipError_t e = call([&](Lock&) { return device_of(handle, device); });
  this_thread().last_error = last_error;  // this function never sets the last error
  return e == hipSuccess ? device : -1;
}
#endif

#endif

}  // extern "C"
