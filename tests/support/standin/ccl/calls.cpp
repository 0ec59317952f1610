// SPDX-License-Identifier: Apache-2.0
/// The entry points. A group begins to run when its streams come to it, and calls outside of a
/// group are groups of one.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "communicator.hpp"
#include "inspect.hpp"

#ifdef STANDIN_CUDA
#include <cuda_runtime_api.h>
using StreamHandle = cudaStream_t;
#define API(name) cuda##name
#else
#include <hip/hip_runtime_api.h>
using StreamHandle = hipStream_t;
#define API(name) hip##name
#endif

struct ncclComm {
  std::shared_ptr<standin::ccl::Communicator> communicator;
};

using namespace standin::ccl;

namespace {

/// STANDIN_CCL_FAULT: `call=N;code=C` lets the N-th call that returns a status fail, which does
/// nothing; with `;form=executed` it does what it is for, and fails. `query=N;code=C` lets the N-th
/// question for an asynchronous error fail, which does not count as a call: threads ask all the
/// time. `operation=N;code=C` lets the N-th operation wait until it is aborted, and sets the
/// asynchronous error.
struct Fault {
  long call = 0;
  long query = 0;
  long operation = 0;
  int code = 0;
  bool is_executed = false;
};
const Fault& fault() {
  static const Fault read = [] {
    Fault made;
    const char* const text = std::getenv("STANDIN_CCL_FAULT");
    if (text != nullptr && std::sscanf(text, "call=%ld;code=%d", &made.call, &made.code) != 2 &&
        std::sscanf(text, "query=%ld;code=%d", &made.query, &made.code) != 2 &&
        std::sscanf(text, "operation=%ld;code=%d", &made.operation, &made.code) != 2) {
      std::fprintf(stderr, "stand-in: STANDIN_CCL_FAULT=%s is not understood\n", text);
      std::abort();
    }
    const char* const only = std::getenv("STANDIN_CCL_FAULT_RANK");
    const char* const rank = std::getenv("RANK");
    if (only != nullptr && (rank == nullptr || std::strcmp(only, rank) != 0)) return Fault{};
    made.is_executed = text != nullptr && std::strstr(text, ";form=executed") != nullptr;
    return made;
  }();
  return read;
}
bool is_set(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && std::strcmp(text, "1") == 0;
}
[[noreturn]] void hang() {
  for (;;) pause();
}

std::atomic_long calls{0}, queries{0}, operations{0};
std::atomic<const char*> failed{nullptr};  // the name of what has failed

ncclResult_t fail(const char* what) {
  failed = what;
  return static_cast<ncclResult_t>(fault().code);
}
/// `f()` is what the call does, and returns a status.
template <class F>
ncclResult_t call(const char* name, F f) {
  const bool fails = ++calls == fault().call;
  if (fails && !fault().is_executed) return fail(name);
  const ncclResult_t result = f();
  return fails ? fail(name) : result;
}
/// A call that creates something, or cannot be undone: if it fails it has done nothing.
template <class F>
ncclResult_t whole_call(const char* name, F f) {
  return ++calls == fault().call ? fail(name) : f();
}

struct Handles {
  std::mutex mutex;
  std::map<ncclComm_t, std::unique_ptr<ncclComm>> live;
};
Handles& handles() {
  static auto& instance = *new Handles;
  return instance;
}

std::shared_ptr<Communicator> find(ncclComm_t handle, bool ends = false) {
  const std::lock_guard lock{handles().mutex};
  const auto found = handles().live.find(handle);
  if (found == handles().live.end()) {
    std::fprintf(stderr, "stand-in: a communicator is used that does not live\n");
    std::abort();
  }
  auto communicator = found->second->communicator;
  if (ends) handles().live.erase(found);
  return communicator;
}

ncclComm_t add(std::shared_ptr<Communicator> communicator) {
  auto made = std::make_unique<ncclComm>(ncclComm{std::move(communicator)});
  ncclComm_t const handle = made.get();
  const std::lock_guard lock{handles().mutex};
  handles().live.emplace(handle, std::move(made));
  return handle;
}

/// The calls for one communicator in a group.
struct Batch {
  std::shared_ptr<Communicator> communicator;
  StreamHandle stream;
  std::vector<Call> calls;
};
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Batch> batches;
};
thread_local Group group;

bool has_collective(const Batch& batch) {
  return std::any_of(batch.calls.begin(), batch.calls.end(),
                     [](const Call& call) { return call.kind != Kind::message; });
}

ncclResult_t enqueue(const Batch& batch) {
  const auto communicator = batch.communicator;
  const uint64_t number = has_collective(batch) ? ++communicator->collectives : 0;
  const bool fails = ++operations == fault().operation;
  if (fails) fail("an operation");
  const int code = standin_run_work(batch.stream, "collective operation",
                                    [communicator, calls = batch.calls, number, fails] {
                                      if (fails) {
                                        communicator->fail(static_cast<ncclResult_t>(fault().code));
                                        communicator->wait_for_abort();
                                      }
                                      communicator->run(calls, number);
                                    });
  return code == 0 ? ncclSuccess : ncclUnhandledCudaError;
}

/// All ranks of the group connect, even if only the first one's operations are enqueued.
ncclResult_t end_group(bool only_first = false) {
  const Group ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  const auto for_connecting = [&](auto f) {
    for (const Batch& batch : ended.batches)
      if (has_collective(batch)) f(*batch.communicator);
  };
  for_connecting([](Communicator& each) { each.begin_to_connect(); });
  for_connecting([](Communicator& each) { each.connect(); });
  for (const Batch& batch : ended.batches) {
    if (const ncclResult_t result = enqueue(batch); result != ncclSuccess) return result;
    if (only_first) break;
  }
  return ncclSuccess;
}

ncclResult_t add_to_group(ncclComm_t handle, StreamHandle stream, const Call& call) {
  const auto communicator = find(handle);
  if (call.root < 0 || call.root >= communicator->size()) return ncclInvalidArgument;
  const auto found =
      std::find_if(group.batches.begin(), group.batches.end(),
                   [&](const Batch& each) { return each.communicator == communicator; });
  if (found == group.batches.end()) {
    group.batches.push_back({communicator, stream, {call}});
  } else if (found->stream == stream) {
    found->calls.push_back(call);
  } else {
    std::fprintf(
        stderr, "stand-in: a communicator has several streams in a group, which is not modelled\n");
    std::abort();
  }
  return group.depth == 0 ? end_group() : ncclSuccess;
}

ncclResult_t post(const char* name, ncclComm_t handle, StreamHandle stream, const Call& what) {
  const ncclResult_t result = call(name, [&] { return add_to_group(handle, stream, what); });
  if (result != ncclSuccess) {
    group.error = result;
    if (group.depth == 0) group = {};
  }
  return result;
}

const byte* bytes(const void* memory) { return static_cast<const byte*>(memory); }
byte* bytes(void* memory) { return static_cast<byte*>(memory); }

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  return call(__func__, [&] {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  });
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return call(__func__, [&] {
    const standin::SharedFile place = Communicator::make_place();
    std::memset(id, 0, sizeof *id);
    std::memcpy(id, &place, sizeof place);
    return place.number < 0 ? ncclSystemError : ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* made, int size, ncclUniqueId id, int rank) {
  return whole_call(__func__, [&] {
    int device = 0;
    if (API(GetDevice)(&device) != API(Success)) {
      static_cast<void>(API(GetLastError)());  // as NCCL does
      return ncclUnhandledCudaError;
    }
    if (rank < 0 || rank >= size || group.depth > 0) return ncclInvalidArgument;
    standin::SharedFile place;
    std::memcpy(static_cast<void*>(&place), &id, sizeof place);
    auto communicator = Communicator::join(place, rank, size);
    if (communicator == nullptr) return ncclSystemError;
    communicator->wait_for_all();
    *made = add(std::move(communicator));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitAll(ncclComm_t* made, int size, const int*) {
  return whole_call(__func__, [&] {
    const standin::SharedFile place = Communicator::make_place();
    for (int rank : range(size)) {
      auto communicator = Communicator::join(place, rank, size);
      if (communicator == nullptr) return ncclSystemError;
      made[rank] = add(std::move(communicator));
    }
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return call(__func__, [&] {
    find(handle, true)->finish(is_set("STANDIN_CCL_DESTROY_WAITS"));
    return ncclSuccess;
  });
}

/// Whatever it returns, it has ended the operations.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const auto communicator = find(handle, true);
  communicator->abort();
  if (is_set("STANDIN_CCL_ABORT_HANGS")) hang();
  communicator->finish(false);
  return call(__func__, [] { return ncclSuccess; });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  *error = find(handle)->error();
  return ++queries == fault().query ? fail(__func__) : ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {
      "no error",         "unhandled runtime error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",           "remote process exited",  "in progress"};
  return static_cast<size_t>(result) < std::size(texts) ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
  return whole_call(__func__, [] {
    ++group.depth;
    return ncclSuccess;
  });
}

/// Ends the group, even if it fails. What it has then enqueued is nothing, or the operations of the
/// first communicator.
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  const bool fails = ++calls == fault().call;
  if (fails && (!fault().is_executed || group.depth > 1)) group.error = fail(__func__);
  if (--group.depth > 0) return group.error;
  const ncclResult_t result = end_group(fails);
  return fails ? fail(__func__) : result;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, StreamHandle stream) {
  return post(__func__, comm, stream,
              {Kind::all_reduce, bytes(in), bytes(out), count, type, how, 0});
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t how, int root, ncclComm_t comm, StreamHandle stream) {
  return post(__func__, comm, stream,
              {Kind::reduce, bytes(in), bytes(out), count, type, how, root});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t how, ncclComm_t comm, StreamHandle stream) {
  return post(__func__, comm, stream,
              {Kind::reduce_scatter, bytes(in), bytes(out), count, type, how, 0});
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, StreamHandle stream) {
  return post(__func__, comm, stream,
              {Kind::broadcast, bytes(in), bytes(out), count, type, ncclSum, root});
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, StreamHandle stream) {
  return post(__func__, comm, stream,
              {Kind::all_gather, bytes(in), bytes(out), count, type, ncclSum, 0});
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      StreamHandle stream) {
  return post(__func__, comm, stream,
              {Kind::message, bytes(in), nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      StreamHandle stream) {
  return post(__func__, comm, stream,
              {Kind::message, nullptr, bytes(out), count, type, ncclSum, peer});
}

void standin_ccl_inspect(StandinCclView* view) {
  const char* const name = failed;
  const std::lock_guard lock{handles().mutex};
  *view = {calls, queries, operations, handles().live.size(), name != nullptr ? name : ""};
}

}  // extern "C"
