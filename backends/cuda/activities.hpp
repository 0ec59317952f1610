// SPDX-License-Identifier: Apache-2.0
/// Times of kernels, copies and fills from CUPTI's activity API, for traces. The library does not
/// link CUPTI, and needs no header of it: when a trace begins, it loads the CUPTI of the runtime's
/// major version. The declarations here are the used part of CUPTI 12 and 13;
/// tests/integration/trace/cupti.cpp compares them with CUPTI's own header.
#pragma once

#include "backend.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace runnel::inline RUNNEL_ABI::rt {

// Values of CUpti_ActivityKind.
inline constexpr int cupti_copy = 1;
inline constexpr int cupti_fill = 2;
// CONCURRENT_KERNEL, which does not serialize kernels.
inline constexpr int cupti_kernel = 10;
inline constexpr int cupti_peer_copy = 22;  // MEMCPY2
inline constexpr std::array cupti_kinds{cupti_kernel, cupti_copy, cupti_peer_copy, cupti_fill};

/// The beginning of CUpti_ActivityKernel5 to 10. Each version of a record has appended fields.
struct CuptiKernel {
  std::uint32_t kind;
  unsigned char settings[12];
  std::uint64_t start;  // 0: unknown
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  unsigned char shape[52];
  const char* name;
};
/// The beginning of CUpti_ActivityMemcpy to 6, CUpti_ActivityMemcpyPtoP to 4 and
/// CUpti_ActivityMemset to 4.
struct CuptiTransfer {
  std::uint32_t kind;
  std::uint32_t details;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
};

/// CUPTI's functions. They return 0 on success.
struct Cupti {
  int (*version)(std::uint32_t*);
  int (*text_of)(int status, const char**);
  int (*subscribe)(void** subscriber, void (*)(void*, int, std::uint32_t, const void*), void*);
  int (*unsubscribe)(void* subscriber);
  int (*set_callbacks)(void (*requested)(std::uint8_t**, std::size_t*, std::size_t*),
                       void (*completed)(void*, std::uint32_t, std::uint8_t*, std::size_t,
                                         std::size_t));
  int (*enable)(int kind);
  int (*disable)(int kind);
  int (*flush)(std::uint32_t forced);
  int (*next)(std::uint8_t* buffer, std::size_t size, void** record);
  int (*dropped)(void* context, std::uint32_t stream, std::size_t* count);
  int (*time)(std::uint64_t*);
  int (*stream_number)(void* context, cudaStream_t, std::uint8_t per_thread, std::uint32_t* number);
};

struct Collection {
  Cupti cupti{};
  void* subscriber = nullptr;
  backend::ActivitySink sink = nullptr;
};
inline constinit Collection cuda_collection{};

template <class Function>
bool find_in_cupti(void* library, Function*& function, const char* name) noexcept {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

/// Loads all functions. Writes the reason to `text` if that fails.
inline bool find_cupti(Cupti& found, char* text, std::size_t size) noexcept {
  char name[32];
  std::snprintf(name, sizeof name, "libcupti.so.%d", CUDART_VERSION / 1000);
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    std::snprintf(text, size, "%s", reason != nullptr ? reason : name);
    return false;
  }
  const bool has_all =
      find_in_cupti(library, found.version, "cuptiGetVersion") &&
      find_in_cupti(library, found.text_of, "cuptiGetResultString") &&
      find_in_cupti(library, found.subscribe, "cuptiSubscribe") &&
      find_in_cupti(library, found.unsubscribe, "cuptiUnsubscribe") &&
      find_in_cupti(library, found.set_callbacks, "cuptiActivityRegisterCallbacks") &&
      find_in_cupti(library, found.enable, "cuptiActivityEnable") &&
      find_in_cupti(library, found.disable, "cuptiActivityDisable") &&
      find_in_cupti(library, found.flush, "cuptiActivityFlushAll") &&
      find_in_cupti(library, found.next, "cuptiActivityGetNextRecord") &&
      find_in_cupti(library, found.dropped, "cuptiActivityGetNumDroppedRecords") &&
      find_in_cupti(library, found.time, "cuptiGetTimestamp") &&
      find_in_cupti(library, found.stream_number, "cuptiGetStreamIdEx");
  if (!has_all) std::snprintf(text, size, "%s lacks a function that CUPTI 12 has", name);
  return has_all;
}

/// CUPTI's callback that requests a buffer. Without a buffer CUPTI drops records, and counts them.
inline void provide_activity_buffer(std::uint8_t** buffer, std::size_t* size,
                                    std::size_t* max_records) noexcept {
  // CUPTI's documentation recommends 1 to 10 MiB
  constexpr std::size_t bytes = std::size_t{1} << 20;
  *buffer = static_cast<std::uint8_t*>(std::malloc(bytes));
  *size = *buffer != nullptr ? bytes : 0;
  *max_records = 0;  // as many as fit
}

/// Converts a record. False for a record of another kind. Kernels may have no times.
inline bool read_activity(const void* record, backend::Activity& activity) noexcept {
  const auto number = [](std::uint32_t device) { return static_cast<int>(device); };
  const auto kind = static_cast<int>(*static_cast<const std::uint32_t*>(record));
  if (kind == cupti_kernel) {
    const auto& kernel = *static_cast<const CuptiKernel*>(record);
    activity = {backend::ActivityKind::kernel,
                number(kernel.device),
                kernel.stream,
                kernel.name,
                0,
                kernel.start,
                kernel.end};
    return true;
  }
  if (kind != cupti_copy && kind != cupti_peer_copy && kind != cupti_fill) return false;
  const auto& transfer = *static_cast<const CuptiTransfer*>(record);
  activity = {kind == cupti_fill ? backend::ActivityKind::fill : backend::ActivityKind::copy,
              number(transfer.device),
              transfer.stream,
              nullptr,
              transfer.bytes,
              transfer.start,
              transfer.end};
  return true;
}

/// CUPTI's callback with a buffer of records, on its own thread or during a flush.
inline void deliver_activity_buffer(void*, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                    std::size_t valid) noexcept {
  const Collection& all = cuda_collection;
  std::array<backend::Activity, 128> some;
  std::size_t count = 0;
  std::size_t lost = 0;
  // Any status other than success ends the buffer: there are no more records, or the next one is
  // incomplete.
  for (void* record = nullptr; valid > 0 && all.cupti.next(buffer, valid, &record) == 0;) {
    backend::Activity activity{};
    if (!read_activity(record, activity)) continue;
    if (activity.begin == 0 || activity.end < activity.begin) {
      ++lost;
      continue;
    }
    some[count++] = activity;
    if (count < some.size()) continue;
    all.sink(some.data(), count, 0);
    count = 0;
  }
  all.sink(some.data(), count, lost);
  std::free(buffer);
}

inline void stop_cupti(const Collection& all) noexcept {
  for (const int kind : cupti_kinds) all.cupti.disable(kind);
  all.cupti.unsubscribe(all.subscriber);
}

/// A subscriber reserves CUPTI for this program, so that another tool that uses CUPTI does not lose
/// its records. Returns CUPTI's status.
inline int start_cupti(Collection& all) noexcept {
  int status = all.cupti.subscribe(
      &all.subscriber, [](void*, int, std::uint32_t, const void*) noexcept {}, nullptr);
  if (status != 0) return status;
  status = all.cupti.set_callbacks(&provide_activity_buffer, &deliver_activity_buffer);
  for (const int kind : cupti_kinds)
    if (status == 0) status = all.cupti.enable(kind);
  if (status != 0) stop_cupti(all);
  return status;
}

inline bool cuda_collect_activities(backend::ActivitySink sink, char* text,
                                    std::size_t size) noexcept {
  Collection& all = cuda_collection;
  all.sink = sink;
  if (!find_cupti(all.cupti, text, size)) return false;
  const int status = start_cupti(all);
  if (status == 0) {
    std::uint32_t version = 0;
    all.cupti.version(&version);
    std::snprintf(text, size, "CUPTI, API version %u", version);
    return true;
  }
  const char* name = "";
  all.cupti.text_of(status, &name);
  std::snprintf(text, size, "CUPTI refuses: %s (%d)", name, status);
  return false;
}

/// A forced flush also returns incomplete records, whose times are then lost. So only the last
/// flush is forced.
inline void cuda_deliver_activities(bool last) noexcept {
  const Collection& all = cuda_collection;
  constexpr std::uint32_t forced = 1;
  all.cupti.flush(last ? forced : 0);
  // Dropped since the last call. CUPTI may have no buffer left to report them with.
  std::size_t dropped = 0;
  if (all.cupti.dropped(nullptr, 0, &dropped) == 0) all.sink(nullptr, 0, dropped);
  if (last) stop_cupti(all);
}

inline bool cuda_activity_time(std::uint64_t& nanoseconds) noexcept {
  return cuda_collection.cupti.time(&nanoseconds) == 0;
}

inline bool cuda_activity_stream(cudaStream_t stream, std::uint32_t& number) noexcept {
  const std::uint8_t per_thread = stream == cudaStreamPerThread ? 1 : 0;
  return cuda_collection.cupti.stream_number(nullptr, stream, per_thread, &number) == 0;
}

}  // namespace runnel::inline RUNNEL_ABI::rt
