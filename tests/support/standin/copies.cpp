// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "calls.hpp"
#include "inspect.hpp"

using namespace standin;

namespace {

constexpr size_t staged_at_the_call = size_t{64} << 10U;

/// Of the vendors' devices ("memPitch").
constexpr size_t largest_pitch = (size_t{1} << 31) - 1;

Rows row(const void* begin, size_t width) {
  return {static_cast<byte*>(const_cast<void*>(begin)), width, width, 1};
}
Rows rows(const void* begin, size_t pitch, size_t width, size_t height) {
  return {static_cast<byte*>(const_cast<void*>(begin)), pitch, width, height};
}

// Returns false for freed memory, which it counts as misuse, and for bytes beyond the end of a
// block. In a capture, memory of a graph need not be in use yet.
bool valid(const Rows& side, bool captured = false) {
  const Block block = state().blocks.of(side.begin);
  const bool freed = block.kind == Memory::freed || (!captured && !block.in_use());
  if (freed) ++state().misuse.use_after_free;
  return !freed && state().blocks.holds(side.begin, side.range().size);
}

// Memory of a pool is open to the streams of its device, and of those that were given access.
bool reaches(const Stream& stream, const Rows& side) {
  const Pool* const pool = state().blocks.of(side.begin).pool;
  return pool == nullptr || !settings().peers || pool->device == stream.device ||
         pool->peers.contains(stream.device);
}

Memory kind_of(const Rows& side) { return state().blocks.of(side.begin).kind; }

// Overwrites the destination, so that a program that reads it too early always reads wrong bytes.
void poison(const Rows& to) {
  constexpr size_t at_most = size_t{1} << 20U;
  size_t left = at_most;
  for (size_t i = 0; i < to.height && left > 0; ++i) {
    const size_t bytes = std::min(left, to.width);
    std::memset(to.row(i), 0xDB, bytes);
    left -= bytes;
  }
}

// A wrong program may free a block between the call and the copy.
bool still_valid(const Rows& to, const Rows* from) {
  const Lock lock{engine().mutex};
  return valid(to) && (from == nullptr || valid(*from));
}

void become_copy(Work& work, const Rows& to, const Rows& from) {
  work.kind = Kind::copy;
  work.to = to;
  work.from = from;
  work.bytes = to.width * to.height;
  work.touches = {to.range(), from.range()};
  work.poison = [to] { poison(to); };
  work.shape = static_cast<int>(kind_of(to)) * 16 + static_cast<int>(kind_of(from));
  work.run = [to, from] {
    if (!still_valid(to, &from)) return;
    for (size_t i : range(to.height)) std::memmove(to.row(i), from.row(i), to.width);
  };
}

void become_fill(Work& work, const Rows& to, std::vector<byte> value) {
  work.kind = Kind::fill;
  work.to = to;
  work.value = value;
  work.bytes = to.width * to.height;
  work.touches = {to.range()};
  work.poison = [to] { poison(to); };
  work.shape = static_cast<int>(kind_of(to)) * 16 + static_cast<int>(value.size());
  work.run = [to, value = std::move(value)] {
    if (!still_valid(to, nullptr)) return;
    for (size_t i : range(to.height)) {
      for (size_t j = 0; j < to.width; j += value.size())
        std::memcpy(to.row(i) + j, value.data(), value.size());
    }
  };
}

bool is_read_early(const Rows& from) {
  return kind_of(from) == Memory::pinned && from.width * from.height <= 4096;
}
bool is_idle(const Stream& stream) {
  const OperationPtr own = stream.kind == StreamKind::legacy ? stream.last : stream.own_last();
  return own == nullptr || own->done;
}

int copy(Stream& stream, Lock& lock, const Rows& to, const Rows& from) {
  if (to.width == 0 || to.height == 0) return ok;
  if (to.begin == nullptr || from.begin == nullptr || to.pitch < to.width ||
      from.pitch < from.width)
    return invalid_value;
  const bool captured = stream.capturing();
  if (!valid(to, captured) || !valid(from, captured)) return invalid_value;

  const bool to_host = kind_of(to) == Memory::pageable || kind_of(to) == Memory::pinned;
  const bool from_host = kind_of(from) == Memory::pageable || kind_of(from) == Memory::pinned;
  const bool small = from.width * from.height <= staged_at_the_call;
  auto operation = operation_of();
  become_copy(*operation, to, from);
  const bool blocks = !captured && (kind_of(to) == Memory::pageable || (to_host && from_host) ||
                                    (kind_of(from) == Memory::pageable && !small));

  // CUDA reads a few bytes of pinned memory within the call too, if the stream's own work is done.
  // Pending work of the default stream does not matter. Seen on an H200 (CUDA 13.0) with 1000
  // bytes, not with 30,000.
  const bool taken_early = is_read_early(from) && is_idle(stream);
  if (((kind_of(from) == Memory::pageable && small) || taken_early) && !to_host && !captured) {
    std::vector<byte> taken(from.width * from.height);
    for (size_t i : range(from.height))
      std::memcpy(taken.data() + i * from.width, from.row(i), from.width);
    operation->run = [to, taken = std::move(taken)] {
      if (!still_valid(to, nullptr)) return;
      for (size_t i : range(to.height))
        std::memcpy(to.row(i), taken.data() + i * to.width, to.width);
    };
  }
  if (!blocks && !captured) poison_if_unused(*operation);
  engine().submit(stream, operation);
  if (blocks) engine().wait(lock, operation);
  return ok;
}

// Repeats `value` along each row. A fill of pinned memory does not block the caller either,
// contrary to CUDA's documentation: seen on an H200 (driver 580, CUDA 13.0).
int fill(Stream& stream, const Rows& to, std::vector<byte> value) {
  if (to.width == 0 || to.height == 0) return ok;
  if (reinterpret_cast<uintptr_t>(to.begin) % value.size() != 0) return invalid_value;
  if (to.pitch < to.width || !valid(to, stream.capturing()) || kind_of(to) == Memory::pageable ||
      !reaches(stream, to))
    return invalid_value;
  auto operation = operation_of();
  become_fill(*operation, to, std::move(value));
  if (!stream.capturing()) poison_if_unused(*operation);
  engine().submit(stream, std::move(operation));
  return ok;
}

}  // namespace

void standin::poison_if_unused(const Work& work) {
  const bool reads_its_destination =
      work.touches.size() > 1 && overlap(work.touches[0], work.touches[1]);
  if (!reads_its_destination && engine().untouched_by_pending(work.touches[0])) work.poison();
}

int standin::fill_elements(Stream& stream, void* to, const void* value, size_t width,
                           size_t count) {
  const auto* const begin = static_cast<const byte*>(value);
  return fill(stream, row(to, width * count), {begin, begin + width});
}

extern "C" {

// Holds the mutex while it copies, so that no other thread frees the memory meanwhile.
void standin_move(void* to, const void* from, size_t size) {
  const Lock lock{engine().mutex};
  if (valid(row(to, size)) && valid(row(from, size))) std::memmove(to, from, size);
}

Error API(MemcpyAsync)(void* to, const void* from, size_t size, vendor::CopyKind, StreamHandle on) {
  return call(work_on(on, [=](Stream& stream, Lock& lock) {
    if (!reaches(stream, row(to, size)) || !reaches(stream, row(from, size))) return invalid_value;
    return copy(stream, lock, row(to, size), row(from, size));
  }));
}

Error API(Memcpy2DAsync)(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, vendor::CopyKind, StreamHandle on) {
  return call(work_on(on, [=](Stream& stream, Lock& lock) {
    if (std::max(to_pitch, from_pitch) > largest_pitch) return invalid_value;
    const Rows target = rows(to, to_pitch, width, height),
               source = rows(from, from_pitch, width, height);
    if (!reaches(stream, target) || !reaches(stream, source)) return invalid_value;
    return copy(stream, lock, target, source);
  }));
}

Error API(MemcpyPeerAsync)(void* to, int to_device, const void* from, int from_device, size_t size,
                           StreamHandle on) {
  return call(work_on(on, [=](Stream& stream, Lock& lock) {
    const Block target = state().blocks.of(to);
    const Block source = state().blocks.of(from);
    if ((target.kind == Memory::device && target.device != to_device) ||
        (source.kind == Memory::device && source.device != from_device)) {
      ++state().misuse.wrong_device;
      return invalid_value;
    }
    // Seen on two H100, driver 580: CUDA cannot record this call, but can record cudaMemcpyAsync
    // between two devices.
    if (stream.capturing()) return break_capture(*stream.capture, capture_unsupported);
    return copy(stream, lock, row(to, size), row(from, size));
  }));
}

#if defined STANDIN_CUDA && CUDART_VERSION >= 12080
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* sizes,
                                 size_t count, cudaMemcpyAttributes* attributes, size_t*,
                                 size_t attribute_count, cudaStream_t on) {
#else
cudaError_t cudaMemcpyBatchAsync(void** to, void** from, size_t* sizes, size_t count,
                                 cudaMemcpyAttributes* attributes, size_t*, size_t attribute_count,
                                 size_t*, cudaStream_t on) {
#endif
  return call(work_on(on, [=](Stream& stream, Lock& lock) {
    if (on == nullptr || count == 0 || attribute_count != 1) return invalid_value;
    if (attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream) return invalid_value;
    if (std::count(sizes, sizes + count, 0) != 0) return invalid_value;
    // Seen on an H200: a capture cannot record this call.
    if (stream.capturing()) return break_capture(*stream.capture, capture_unsupported);
    const bool reads_early = is_idle(stream);
    for (size_t i : range(count)) {
      // Seen on an H200: a source that is read within the call waits for the larger ones before it.
      if (reads_early && i > 0 && is_read_early(row(from[i], sizes[i])) &&
          !is_read_early(row(from[i - 1], sizes[i - 1])))
        engine().wait(lock, stream.last);
      if (const int code = copy(stream, lock, row(to[i], sizes[i]), row(from[i], sizes[i])))
        return code;
    }
    return ok;
  }));
}
#endif

Error API(MemsetAsync)(void* to, int value, size_t size, StreamHandle on) {
  return call(work_on(
      on, [=](Stream& stream) { return fill(stream, row(to, size), {static_cast<byte>(value)}); }));
}

Error API(Memset2DAsync)(void* to, size_t pitch, int value, size_t width, size_t height,
                         StreamHandle on) {
  return call(work_on(on, [=](Stream& stream) {
    return fill(stream, rows(to, pitch, width, height), {static_cast<byte>(value)});
  }));
}

#ifdef STANDIN_HIP
hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count,
                             hipStream_t on) {
  return call(work_on(
      on, [=](Stream& stream) { return fill_elements(stream, to, &value, sizeof value, count); }));
}

hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t on) {
  return call(work_on(
      on, [=](Stream& stream) { return fill_elements(stream, to, &value, sizeof value, count); }));
}
#endif

}  // extern "C"
