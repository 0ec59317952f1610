// SPDX-License-Identifier: Apache-2.0
/// The driver functions that runnel gets from the CUDA runtime. A context is the device's number
/// plus one, so that it is not null.
#include "calls.hpp"

#ifdef STANDIN_CUDA

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

#include <string_view>

#include "../eventually.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

thread_local std::vector<Number> contexts;

/// The driver's functions do not change the runtime's last error.
template <class Body>
int driver_call(Call kind, Body&& body, const char* name) {
  const int last_error = this_thread().last_error;
  const int code = call(kind, static_cast<Body&&>(body), name);
  this_thread().last_error = last_error;
  return code;
}
template <class Body>
int driver_call(Body&& body, const char* name) {
  return driver_call(Call::plain, static_cast<Body&&>(body), name);
}

template <class Value>
int fill(unsigned long long to, Value value, size_t count, cudaStream_t stream) {
  const auto body = work_on(stream, [&](Stream& found) {
    return fill_elements(found, reinterpret_cast<void*>(to), &value, sizeof value, count);
  });
  constexpr const char* names[] = {"cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"};
  return driver_call(body, names[sizeof value / 2]);
}

int value_operation(cudaStream_t handle, unsigned long long place,
                    std::function<void(std::atomic_ref<uint32_t>)> run, bool waits) {
  const auto body = on_stream(handle, [&](Stream& stream) {
    if (!settings().memory_operations) return not_supported;
    auto* const value = reinterpret_cast<uint32_t*>(place);
    const Memory kind = state().blocks.of(value).kind;
    if (place % sizeof *value != 0 || kind == Memory::pageable || kind == Memory::freed)
      return invalid_value;
    if (const Code code = refusal(stream)) return code;
    engine().submit(
        stream,
        operation_of({.kind = Kind::value,
                      .run = [run = std::move(run), value] { run(std::atomic_ref{*value}); },
                      .touches = {{reinterpret_cast<const byte*>(value), sizeof *value}},
                      .opaque = waits}));
    return ok;
  });
  return driver_call(body, waits ? "cuStreamWaitValue32" : "cuStreamWriteValue32");
}

int wait_value(cudaStream_t stream, unsigned long long place, uint32_t least, unsigned int flags) {
  if (flags != 0) return not_supported;
  const auto wait = [least](std::atomic_ref<uint32_t> value) {
    for (test_support::Pauses pause; static_cast<std::int32_t>(value.load() - least) < 0;) pause();
  };
  return value_operation(stream, place, wait, true);
}

int write_value(cudaStream_t stream, unsigned long long place, uint32_t written,
                unsigned int flags) {
  if (flags != 0) return not_supported;
  return value_operation(
      stream, place, [written](std::atomic_ref<uint32_t> value) { value.store(written); }, false);
}

int context_of(cudaStream_t stream, void** context) {
  int device = 0;
  const int code =
      driver_call(on_stream(stream, [&](Stream& found) { return device = found.device, ok; }),
                  "cuStreamGetCtx");
  *context = number_of_device(device);
  return code;
}

// Parts of a device. The stand-in separates pairs of its 132 multiprocessors. A context is the
// number of its multiprocessors.

/// Is CUdevResource.
struct Resource {
  int type;  // 1: multiprocessors
  unsigned char padding[92];
  unsigned int count;
  unsigned int least;
  unsigned int alignment;
  unsigned char rest[36];
};
#if __has_include(<cuda.h>) && CUDART_VERSION >= 12040
static_assert(sizeof(Resource) == sizeof(CUdevResource) &&
              offsetof(Resource, count) == offsetof(CUdevResource, sm.smCount));
#if CUDART_VERSION >= 13000
static_assert(offsetof(Resource, least) == offsetof(CUdevResource, sm.minSmPartitionSize) &&
              offsetof(Resource, alignment) == offsetof(CUdevResource, sm.smCoscheduledAlignment));
#endif
static_assert(CU_DEV_RESOURCE_TYPE_SM == 1 && CU_GREEN_CTX_DEFAULT_STREAM == 1 &&
              CU_STREAM_NON_BLOCKING == 1);
#endif

// Of CUpointer_attribute.
constexpr int memory_type_attribute = 2, is_managed_attribute = 8, device_ordinal_attribute = 9;
#if __has_include(<cuda.h>)
static_assert(memory_type_attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
              is_managed_attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
              device_ordinal_attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(cudaMemoryTypeHost == static_cast<int>(CU_MEMORYTYPE_HOST) &&
              cudaMemoryTypeDevice == static_cast<int>(CU_MEMORYTYPE_DEVICE));
#endif

int get_resource(int device, Resource* resource, int type) {
  const auto body = [&] {
    if (!exists(device)) return invalid_device;
    if (type != 1) return invalid_value;
    *resource = {};
    resource->type = 1;
    resource->count = 132;
    resource->least = resource->alignment = 2;
    return ok;
  };
  return driver_call(body, "cuDeviceGetDevResource");
}

int split(Resource* groups, unsigned int* count, const Resource* input, Resource* remaining,
          unsigned int flags, unsigned int least) {
  const auto body = [&] {
    if (input->type != 1 || flags != 0 || least > input->count) return invalid_value;
    const unsigned int size = std::max(
        input->least, (least + input->alignment - 1) / input->alignment * input->alignment);
    *count = std::min(*count, input->count / size);
    for (unsigned int i = 0; i < *count; ++i) {
      groups[i] = *input;
      groups[i].count = size;
    }
    *remaining = *input;
    remaining->count = input->count - *count * size;
    remaining->type = remaining->count > 0 ? 1 : 0;
    return ok;
  };
  return driver_call(body, "cuDevSmResourceSplitByCount");
}

int describe_resources(void** description, Resource* resources, unsigned int count) {
  const auto body = [&] {
    uintptr_t sum = 0;
    for (unsigned int i = 0; i < count; ++i) {
      if (resources[i].type != 1) return invalid_value;
      sum += resources[i].count;
    }
    *description = Number{sum};
    return sum > 0 ? ok : invalid_value;
  };
  return driver_call(body, "cuDevResourceGenerateDesc");
}

int create_green_context(void** context, void* description, int device, unsigned int flags) {
  const auto body = [&] {
    if (!exists(device)) return invalid_device;
    if (description == nullptr || flags != 1) return invalid_value;
    *context = Number{Number{description}.value << 8U | static_cast<unsigned int>(device)};
    return ok;
  };
  return driver_call(body, "cuGreenCtxCreate");
}

int create_green_stream(cudaStream_t* handle, void* context, unsigned int flags, int priority) {
  const auto body = [&] {
    if (context == nullptr || flags != 1) return invalid_value;
    const int given = std::clamp(priority, settings().greatest_priority, settings().least_priority);
    const int device = static_cast<int>(Number{context}.value & 0xFFU);
    *handle = state().streams.add(state().make_stream(device, StreamKind::independent, given));
    return ok;
  };
  return driver_call(Call::makes, body, "cuGreenCtxStreamCreate");
}

int push(void* context) {
  contexts.push_back(context);
  return ok;
}

int pop(void** context) {
  if (contexts.empty()) return no_context;
  *context = contexts.back();
  contexts.pop_back();
  return ok;
}

int current_context(void** context) {
  const auto body = [&] {
    const ThreadState& thread = this_thread();
    const Number primary = thread.has_context ? number_of_device(thread.device) : Number{};
    *context = contexts.empty() ? primary : contexts.back();
    return ok;
  };
  return driver_call(body, "cuCtxGetCurrent");
}

int state_of_primary(int, unsigned int* flags, int* active) {
  *flags = 0;
  *active = 1;
  return ok;
}

int retain_primary(void** context, int device) {
  const auto body = [&] {
    if (!exists(device)) return invalid_device;
    *context = number_of_device(device);
    return ok;
  };
  return driver_call(body, "cuDevicePrimaryCtxRetain");
}

int release_primary(int) { return ok; }

int context_device(int* device) {
  if (contexts.empty()) return no_context;
  *device = static_cast<int>(contexts.back().value) - 1;
  return ok;
}

struct Known {
  template <class Function>
  Known(std::string_view known, Function* of)
      : name{known}, function{reinterpret_cast<void*>(of)} {}
  std::string_view name;
  void* function;
};

bool needs_context(cudaStream_t stream) {
  if (stream != nullptr) return false;  // It has a context of its own.
  const Lock lock{engine().mutex};
  return !this_thread().has_context;
}
template <class Argument>
bool needs_context(const Argument&) {
  return false;
}

/// The driver's form of a function that the runtime has, too.
template <class... Arguments>
struct TwinOf {
  template <cudaError_t (*function)(Arguments...)>
  static int call(Arguments... arguments) {
    if ((needs_context(arguments) || ...)) return no_context;
    const int last_error = this_thread().last_error;
    const int code = function(arguments...);
    this_thread().last_error = last_error;
    return code;
  }
};
template <auto function, class... Arguments>
auto* twin(cudaError_t (*)(Arguments...)) {
  return &TwinOf<Arguments...>::template call<function>;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

int pointer_attributes(unsigned int count, const int* which, void** values,
                       unsigned long long pointer) {
  cudaPointerAttributes found{};
  const int last_error = this_thread().last_error;
  const int code = cudaPointerGetAttributes(&found, reinterpret_cast<const void*>(pointer));
  this_thread().last_error = last_error;
  const bool is_managed = found.type == cudaMemoryTypeManaged;
  for (unsigned int i = 0; i < count; ++i) {
    int* const value = static_cast<int*>(values[i]);
    if (which[i] == memory_type_attribute) *value = is_managed ? cudaMemoryTypeDevice : found.type;
    if (which[i] == is_managed_attribute) *value = is_managed ? 1 : 0;
    if (which[i] == device_ordinal_attribute) *value = found.device;
  }
  return code;
}

void* find(std::string_view name) {
#define TWIN(name)                             \
  {                                            \
    "cu" #name, twin<&cuda##name>(&cuda##name) \
  }
  const Known functions[] = {
      {"cuMemsetD8Async", &fill<unsigned char>},
      {"cuMemsetD16Async", &fill<unsigned short>},
      {"cuMemsetD32Async", &fill<unsigned int>},
      {"cuStreamWaitValue32", &wait_value},
      {"cuStreamWriteValue32", &write_value},
      {"cuDeviceGetDevResource", &get_resource},
      {"cuDevSmResourceSplitByCount", &split},
      {"cuDevResourceGenerateDesc", &describe_resources},
      {"cuGreenCtxCreate", &create_green_context},
      {"cuGreenCtxStreamCreate", &create_green_stream},
      {"cuStreamGetCtx", &context_of},
      {"cuCtxPushCurrent", &push},
      {"cuCtxPopCurrent", &pop},
      {"cuCtxGetDevice", &context_device},
      {"cuCtxGetCurrent", &current_context},
      {"cuDevicePrimaryCtxGetState", &state_of_primary},
      {"cuDevicePrimaryCtxRetain", &retain_primary},
      {"cuDevicePrimaryCtxRelease", &release_primary},
      TWIN(StreamQuery),
      TWIN(StreamSynchronize),
      TWIN(StreamWaitEvent),
      TWIN(StreamIsCapturing),
      TWIN(ThreadExchangeStreamCaptureMode),
      TWIN(LaunchHostFunc),
      TWIN(EventRecord),
      TWIN(EventQuery),
      TWIN(EventSynchronize),
      {"cuMemcpyAsync", twin<&copy>(&copy)},
      {"cuMemAllocFromPoolAsync", twin<&cudaMallocFromPoolAsync>(&cudaMallocFromPoolAsync)},
      {"cuMemFreeAsync", twin<&cudaFreeAsync>(&cudaFreeAsync)},
      {"cuPointerGetAttributes", &pointer_attributes},
  };
#undef TWIN
  for (const auto& [known, function] : functions)
    if (known == name) return function;
  return nullptr;
}

cudaError_t entry_point(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
  return call(
      [&] {
        *function = find(name);
        if (found != nullptr)
          *found = *function != nullptr ? cudaDriverEntryPointSuccess
                                        : cudaDriverEntryPointSymbolNotFound;
        return ok;
      },
      name);  // so that the sweep knows which function was looked up
}

}  // namespace

extern "C" {

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, function, found);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, function, found);
}
#endif

}  // extern "C"

#endif
