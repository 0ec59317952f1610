// SPDX-License-Identifier: Apache-2.0
/// A stand-in for CUPTI, over the stand-in of the CUDA runtime: it delivers a record for each
/// kernel, copy and fill that has run there. It includes CUPTI's own header, so that the compiler
/// checks each function and each record. It claims what CUPTI 13.0's header documents; it has not
/// been compared with CUPTI on a device.
///
/// The variable CUPTI_STANDIN is a list of words, each with a number, as in
/// `refuse_enable=35 records=3`: refuse_subscribe, refuse_enable the status that this call returns
/// records so many records fill a buffer (all that fit) drop every record whose number is a
/// multiple of this one is dropped, and counted untimed such records have no times incomplete a
/// forced flush finds an incomplete record behind the others
#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "../../../backends/cuda/activities.hpp"
#include "../../support/standin/inspect.hpp"

using std::size_t, std::uint8_t;

namespace {

// What the library declares of CUPTI is CUPTI's.
namespace rt = runnel::rt;
using rt::CuptiKernel;
using rt::CuptiTransfer;
using Kernel = CUpti_ActivityKernel10;
using Copy = CUpti_ActivityMemcpy6;
using PeerCopy = CUpti_ActivityMemcpyPtoP4;
using Fill = CUpti_ActivityMemset4;
static_assert(offsetof(CuptiKernel, start) == offsetof(Kernel, start) &&
              offsetof(CuptiKernel, end) == offsetof(Kernel, end));
static_assert(offsetof(CuptiKernel, device) == offsetof(Kernel, deviceId) &&
              offsetof(CuptiKernel, stream) == offsetof(Kernel, streamId));
static_assert(offsetof(CuptiKernel, name) == offsetof(Kernel, name) && offsetof(Kernel, kind) == 0);
template <class Record>
constexpr bool is_transfer =
    offsetof(CuptiTransfer, bytes) == offsetof(Record, bytes) &&
    offsetof(CuptiTransfer, start) == offsetof(Record, start) &&
    offsetof(CuptiTransfer, end) == offsetof(Record, end) &&
    offsetof(CuptiTransfer, device) == offsetof(Record, deviceId) &&
    offsetof(CuptiTransfer, stream) == offsetof(Record, streamId) && offsetof(Record, kind) == 0;
static_assert(is_transfer<Copy> && is_transfer<PeerCopy> && is_transfer<Fill>);
static_assert(rt::cupti_kernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL &&
              rt::cupti_copy == CUPTI_ACTIVITY_KIND_MEMCPY);
static_assert(rt::cupti_peer_copy == CUPTI_ACTIVITY_KIND_MEMCPY2 &&
              rt::cupti_fill == CUPTI_ACTIVITY_KIND_MEMSET);
static_assert(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED == 1 && sizeof(CUptiResult) == sizeof(int) &&
              sizeof(CUpti_ActivityKind) == sizeof(int));

/// The number behind a word of CUPTI_STANDIN, or 0.
unsigned setting(const char* word) {
  const char* const all = std::getenv("CUPTI_STANDIN");
  const char* const found = all != nullptr ? std::strstr(all, word) : nullptr;
  return found != nullptr
             ? static_cast<unsigned>(std::strtoul(found + std::strlen(word) + 1, nullptr, 10))
             : 0;
}

// what this clock is ahead of the steady one
constexpr std::uint64_t time_of_day = 1'700'000'000'000'000'000;
// numbers are not those of the runtime's stand-in
constexpr std::uint32_t first_stream = 6;

struct Buffer {
  uint8_t* bytes;
  size_t size;
  size_t most;
  size_t used = 0;
  size_t count = 0;
};

struct State {
  std::mutex mutex;
  bool subscribed = false;
  std::array<bool, 64> enabled{};
  CUpti_BuffersCallbackRequestFunc requested = nullptr;
  CUpti_BuffersCallbackCompleteFunc completed = nullptr;
  std::deque<Buffer> buffers;  // the last one is being filled
  size_t dropped = 0;
  size_t records = 0;
  unsigned delivering = 0;  // threads that hand buffers over
};
State& state() {
  static State& instance = *new State;
  return instance;
}

template <class Function>
Function* of_runtime(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// Adds a record. Requires: the mutex is held. True if the buffer is full then.
template <class Record>
bool add(State& s, const Record& record) {
  if (s.buffers.empty()) {
    Buffer made{};
    s.requested(&made.bytes, &made.size, &made.most);
    if (made.bytes == nullptr) return ++s.dropped, false;
    if (const unsigned most = setting("records")) made.most = most;
    s.buffers.push_back(made);
  }
  Buffer& buffer = s.buffers.back();
  std::memcpy(buffer.bytes + buffer.used, &record, sizeof record);
  buffer.used += sizeof record;
  ++buffer.count;
  return buffer.count == buffer.most || buffer.size - buffer.used < sizeof(Kernel);
}

template <class Record>
Record about(const StandinWork& work, CUpti_ActivityKind kind, bool is_timed) {
  Record record{};
  record.kind = kind;
  record.deviceId = static_cast<std::uint32_t>(work.device);
  record.streamId = first_stream + static_cast<std::uint32_t>(work.stream);
  record.start = is_timed ? work.begin + time_of_day : 0;
  record.end = is_timed ? work.end + time_of_day : 0;
  return record;
}

bool add_work(State& s, const StandinWork& work, bool is_timed) {
  if (work.kind == 'k' && s.enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]) {
    auto kernel = about<Kernel>(work, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, is_timed);
    kernel.name = work.name;
    return add(s, kernel);
  }
  if (work.kind == 'c' && s.enabled[CUPTI_ACTIVITY_KIND_MEMCPY]) {
    auto copy = about<Copy>(work, CUPTI_ACTIVITY_KIND_MEMCPY, is_timed);
    copy.bytes = work.bytes;
    return add(s, copy);
  }
  if (work.kind == 'f' && s.enabled[CUPTI_ACTIVITY_KIND_MEMSET]) {
    auto fill = about<Fill>(work, CUPTI_ACTIVITY_KIND_MEMSET, is_timed);
    fill.bytes = work.bytes;
    return add(s, fill);
  }
  return false;
}

void hand_over(const Buffer& buffer) {
  state().completed(nullptr, 0, buffer.bytes, buffer.size, buffer.used);
}

/// Called by the runtime's stand-in. A thread of its own hands a full buffer over, as CUPTI's
/// worker does.
void take(const StandinWork* work) {
  State& s = state();
  const std::lock_guard lock{s.mutex};
  ++s.records;
  const unsigned dropped = setting("drop");
  if (dropped != 0 && s.records % dropped == 0) {
    ++s.dropped;
    return;
  }
  const unsigned untimed = setting("untimed");
  if (!add_work(s, *work, untimed == 0 || s.records % untimed != 0)) return;
  const Buffer full = s.buffers.back();
  s.buffers.clear();
  ++s.delivering;
  std::thread{[full] {
    hand_over(full);
    const std::lock_guard done{state().mutex};
    --state().delivering;
  }}.detach();
}

/// The size of a record, by its kind; 0: it is incomplete.
size_t size_of(const uint8_t* record) {
  switch (reinterpret_cast<const CUpti_Activity*>(record)->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(Kernel);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(Copy);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(Fill);
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  return *version = CUPTI_API_VERSION, CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                                          : "CUPTI_ERROR_UNKNOWN";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  const std::lock_guard lock{state().mutex};
  if (const unsigned status = setting("refuse_subscribe")) return static_cast<CUptiResult>(status);
  if (state().subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  state().subscribed = true;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&state());
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  const std::lock_guard lock{state().mutex};
  if (subscriber != reinterpret_cast<CUpti_SubscriberHandle>(&state()) || !state().subscribed)
    return CUPTI_ERROR_INVALID_PARAMETER;
  state().subscribed = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  const std::lock_guard lock{state().mutex};
  state().requested = requested;
  state().completed = completed;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const std::lock_guard lock{state().mutex};
  if (const unsigned status = setting("refuse_enable")) return static_cast<CUptiResult>(status);
  if (state().completed == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
  state().enabled[kind] = true;
  of_runtime<decltype(standin_watch)>("standin_watch")(&take);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard lock{state().mutex};
  state().enabled[kind] = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  State& s = state();
  std::deque<Buffer> flushed;
  for (;;) {
    const std::lock_guard lock{s.mutex};
    flushed.swap(s.buffers);
    if (s.delivering == 0) break;  // all that was delivered has arrived when the call returns
    s.buffers.swap(flushed);
    std::this_thread::yield();
  }
  for (Buffer& buffer : flushed) {
    if (flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED && setting("incomplete") != 0) {
      const size_t left = std::min(buffer.size - buffer.used, sizeof(Kernel));
      std::memset(buffer.bytes + buffer.used, 0, left);
      buffer.used += left;
    }
    hand_over(buffer);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t size, CUpti_Activity** record) {
  uint8_t* next = buffer;
  if (*record != nullptr)
    next = reinterpret_cast<uint8_t*>(*record) + size_of(reinterpret_cast<uint8_t*>(*record));
  if (next >= buffer + size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  if (size_of(next) == 0) return CUPTI_ERROR_INVALID_KIND;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  const std::lock_guard lock{state().mutex};
  *dropped = state().dropped;
  state().dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  *timestamp =
      time_of_day + static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                               std::chrono::nanoseconds{1});
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext, CUstream stream, uint8_t, uint32_t* number) {
  const std::uint64_t found =
      of_runtime<decltype(standin_stream_number)>("standin_stream_number")(stream);
  *number = first_stream + static_cast<std::uint32_t>(found);
  return found != 0 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_STREAM;
}

}  // extern "C"
