// SPDX-License-Identifier: Apache-2.0
/// The driver functions that runnel gets from the CUDA runtime. A context is the device's number plus one, so that it is not null.
#include "calls.hpp"

#ifdef STANDIN_CUDA

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "settings.hpp"

using namespace standin;

namespace {

thread_local std::vector<std::uintptr_t> contexts;

/// The driver's functions do not change the runtime's last error.
template <class Body>
int driver_call(Body&& body, const char* name) {
  const int last_error = this_thread().last_error;
  const int code = call(static_cast<Body&&>(body), name);
  this_thread().last_error = last_error;
  return code;
}

template <class Value>
int fill(unsigned long long to, Value value, std::size_t count, cudaStream_t stream) {
  const auto body = [&](Lock&) { return fill_elements(reinterpret_cast<void*>(to), &value, sizeof value, count, stream); };
  return driver_call(body, sizeof value == 2 ? "cuMemsetD16Async" : "cuMemsetD32Async");
}

int value_operation(cudaStream_t handle, unsigned long long place, std::function<void(std::atomic_ref<std::uint32_t>)> run, bool waits) {
  const auto body = [&](Lock&) -> int {
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return vendor::invalid_handle;
    if (!settings().memory_operations) return vendor::not_supported;
    auto* const value = reinterpret_cast<std::uint32_t*>(place);
    const Memory kind = state().blocks.of(value).kind;
    if (place % sizeof *value != 0 || kind == Memory::pageable || kind == Memory::freed) return vendor::invalid_value;
    if (const vendor::Code code = refusal(*stream)) return code;
    auto operation = std::make_shared<Operation>();
    operation->kind = Kind::value;
    operation->touches.push_back({reinterpret_cast<const std::byte*>(value), sizeof *value});
    operation->opaque = waits;
    operation->run = [run = std::move(run), value] { run(std::atomic_ref{*value}); };
    engine().submit(*stream, std::move(operation));
    return vendor::ok;
  };
  return driver_call(body, waits ? "cuStreamWaitValue32" : "cuStreamWriteValue32");
}

int wait_value(cudaStream_t stream, unsigned long long place, std::uint32_t least, unsigned int flags) {
  if (flags != 0) return vendor::not_supported;
  const auto wait = [least](std::atomic_ref<std::uint32_t> value) {
    while (static_cast<std::int32_t>(value.load() - least) < 0) std::this_thread::sleep_for(std::chrono::microseconds{20});
  };
  return value_operation(stream, place, wait, true);
}

int write_value(cudaStream_t stream, unsigned long long place, std::uint32_t written, unsigned int flags) {
  if (flags != 0) return vendor::not_supported;
  return value_operation(
      stream, place, [written](std::atomic_ref<std::uint32_t> value) { value.store(written); }, false);
}

int context_of(cudaStream_t stream, void** context) {
  int device = 0;
  const int code = driver_call([&](Lock&) { return device_of(stream, device); }, "cuStreamGetCtx");
  *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(device) + 1);
  return code;
}

int push(void* context) {
  contexts.push_back(reinterpret_cast<std::uintptr_t>(context));
  return vendor::ok;
}

int pop(void** context) {
  if (contexts.empty()) return vendor::no_context;
  *context = reinterpret_cast<void*>(contexts.back());
  contexts.pop_back();
  return vendor::ok;
}

int context_device(int* device) {
  if (contexts.empty()) return vendor::no_context;
  *device = static_cast<int>(contexts.back()) - 1;
  return vendor::ok;
}

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

void* find(std::string_view name) {
  if (name == "cuMemsetD16Async") return address(&fill<unsigned short>);
  if (name == "cuMemsetD32Async") return address(&fill<unsigned int>);
  if (name == "cuStreamWaitValue32") return address(&wait_value);
  if (name == "cuStreamWriteValue32") return address(&write_value);
  if (name == "cuStreamGetCtx") return address(&context_of);
  if (name == "cuCtxPushCurrent") return address(&push);
  if (name == "cuCtxPopCurrent") return address(&pop);
  if (name == "cuCtxGetDevice") return address(&context_device);
  return nullptr;
}

cudaError_t entry_point(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
  return call(
      [&](Lock&) {
        *function = find(name);
        if (found != nullptr) *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
        return vendor::ok;
      },
      "cudaGetDriverEntryPoint");
}

}  // namespace

extern "C" {

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, function, found);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long, cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, function, found);
}
#endif

}  // extern "C"

#endif
