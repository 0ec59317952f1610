// SPDX-License-Identifier: Apache-2.0
#include "collectives.hpp"

#include "ccl.hpp"

#include <cstring>

namespace runnel::inline RUNNEL_ABI::ccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

[[nodiscard]] ncclComm_t native_of(Handle communicator) noexcept {
  return static_cast<ncclComm_t>(communicator);
}

/// They have no integers of 16 bits, and a complex number is two numbers.
[[nodiscard]] ncclDataType_t native_of(Element type) noexcept {
  constexpr ncclDataType_t types[] = {ncclUint8,   ncclInt8,    ncclUint8,  {},         {},
                                      ncclInt32,   ncclUint32,  ncclInt64,  ncclUint64, ncclFloat32,
                                      ncclFloat64, ncclFloat32, ncclFloat64};
  return types[static_cast<std::size_t>(type)];
}

[[nodiscard]] ncclRedOp_t native_of(Reduce how) noexcept {
  constexpr ncclRedOp_t operations[] = {ncclSum, ncclProd, ncclMin, ncclMax};
  return operations[static_cast<std::size_t>(how)];
}

}  // namespace

status make_unique_id(UniqueId& id) noexcept {
  ncclUniqueId made{};
  const status s = ncclGetUniqueId(&made);
  std::memcpy(&id, &made, sizeof id);
  return s;
}

status init_rank(Handle& made, int size, const UniqueId& id, int rank) noexcept {
  ncclUniqueId native{};
  std::memcpy(&native, &id, sizeof id);
  ncclComm_t communicator = nullptr;
  const status s = ncclCommInitRank(&communicator, size, native, rank);
  made = communicator;
  return s;
}

status init_all(Handle* made, int count, const int* devices) noexcept {
  static_assert(sizeof(Handle) == sizeof(ncclComm_t));
  return ncclCommInitAll(reinterpret_cast<ncclComm_t*>(made), count, devices);
}

status destroy(Handle communicator) noexcept { return ncclCommDestroy(native_of(communicator)); }

status abort(Handle communicator) noexcept { return ncclCommAbort(native_of(communicator)); }

status async_error(Handle communicator, status& error) noexcept {
  ncclResult_t found = ncclSuccess;
  const status s = ncclCommGetAsyncError(native_of(communicator), &found);
  error = found;
  return s;
}

status group_start() noexcept { return ncclGroupStart(); }

status group_end() noexcept { return ncclGroupEnd(); }

status all_reduce(const void* in, void* out, std::size_t count, Element type, Reduce how,
                  Handle communicator, native::stream stream) noexcept {
  return ncclAllReduce(in, out, count, native_of(type), native_of(how), native_of(communicator),
                       stream);
}

status reduce(const void* in, void* out, std::size_t count, Element type, Reduce how, int root,
              Handle communicator, native::stream stream) noexcept {
  return ncclReduce(in, out, count, native_of(type), native_of(how), root, native_of(communicator),
                    stream);
}

status reduce_scatter(const void* in, void* out, std::size_t count, Element type, Reduce how,
                      Handle communicator, native::stream stream) noexcept {
  return ncclReduceScatter(in, out, count, native_of(type), native_of(how), native_of(communicator),
                           stream);
}

status broadcast(const void* in, void* out, std::size_t count, Element type, int root,
                 Handle communicator, native::stream stream) noexcept {
  return ncclBroadcast(in, out, count, native_of(type), root, native_of(communicator), stream);
}

status all_gather(const void* in, void* out, std::size_t count, Element type, Handle communicator,
                  native::stream stream) noexcept {
  return ncclAllGather(in, out, count, native_of(type), native_of(communicator), stream);
}

status send(const void* in, std::size_t count, Element type, int peer, Handle communicator,
            native::stream stream) noexcept {
  return ncclSend(in, count, native_of(type), peer, native_of(communicator), stream);
}

status receive(void* out, std::size_t count, Element type, int peer, Handle communicator,
               native::stream stream) noexcept {
  return ncclRecv(out, count, native_of(type), peer, native_of(communicator), stream);
}

// The numbers from 6 on were added after version 2.13.
errc classify(status s) noexcept {
  constexpr status remote_error = 6;
  return s == ncclSystemError || s == remote_error ? errc::peer_lost : errc::communicator_broken;
}

bool is_in_progress(status s) noexcept {
  constexpr status in_progress = 7;
  return s == in_progress;
}

const char* error_text(status s) noexcept {
  return ncclGetErrorString(static_cast<ncclResult_t>(s));
}

const char* last_error() noexcept {
  const char* const text = ncclGetLastError(nullptr);
  return text == nullptr ? "" : text;
}

}  // namespace runnel::inline RUNNEL_ABI::ccl
