// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "base/check.hpp"
#include "base/counters.hpp"
#include "copy/run.hpp"
#include "device/device_table.hpp"
#include "slot/operations.hpp"

#include <runnel/memory.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

constexpr const char* operation = "fill memory";

void repeat(unsigned char* to, const unsigned char* element, size_t element_bytes,
            size_t bytes) noexcept {
  if (element_bytes == 1)
    std::memset(to, *element, bytes);
  else
    for (size_t at = 0; at < bytes; at += element_bytes)
      std::memcpy(to + at, element, element_bytes);
}

void fill_by_host_function(const CopyCall& call, const FillRequest& request) {
  // The element must outlive the call.
  const std::shared_ptr<unsigned char[]> element{new unsigned char[request.element_bytes]};
  std::memcpy(element.get(), request.element, request.element_bytes);
  call.stream().launch_host_func([request, element] {
    const UserAccess access;
    for (size_t row = 0; access.is_allowed() && row < request.height; ++row)
      repeat(request.to + row * request.pitch, element.get(), request.element_bytes, request.width);
  });
}

/// Enqueues one runtime call, or a host function if the runtime refuses the memory: it refuses a
/// range that is registered in parts. The error names the cause if another device owns the memory.
void fill_by_runtime(CopyCall& call, const FillRequest& request, const CopyFacts& facts) {
  grant_pool_access(call, facts);
  uint32_t value = 0;
  std::memcpy(&value, request.element, request.element_bytes);
  const native::stream stream = call.slot.handle;
  const backend::status s =
      request.height == 1 ? backend::fill_async(request.to, value, request.element_bytes,
                                                request.width / request.element_bytes, stream)
                          : backend::fill_2d_async(request.to, request.pitch, *request.element,
                                                   request.width, request.height, stream);
  if (s == backend::ok) [[likely]]
    return;
  if (facts.may_be_pinned_in_parts() && failed_with(s, errc::invalid_argument))
    return fill_by_host_function(call, request);
  backend::forget_error(s);
  PointerInfo info{MemoryKind::pageable, Device{0}};
  if (backend::pointer_info(info, request.to) == backend::ok && info.kind == MemoryKind::device &&
      info.device.ordinal() != call.slot.device)
    throw_error(errc::peer_access, operation,
                "the memory is on another device than the stream: enable peer access, or use a "
                "stream there");
  throw_status(s, operation);
}

/// For elements that no runtime call sets. Copies a pinned block with up to 4 KiB of them to the
/// front, then doubles the filled part by further copies.
void fill_by_copies(const CopyCall& call, const FillRequest& request) {
  const size_t count = request.width / request.element_bytes;
  const size_t seed_count = std::min(count, std::max<size_t>(1, 4096 / request.element_bytes));
  // The pool keeps the block until the copy is complete.
  PinnedBuffer<unsigned char> seed(seed_count * request.element_bytes);
  repeat(seed.data(), request.element, request.element_bytes, seed.size());
  const StreamRef stream = call.stream();
  copy_bytes(stream, request.to, seed.data(), seed.size(),
             {.to_kind = request.to_kind, .from_kind = MemoryKind::pinned});
  for (size_t done = seed.size(); done < request.width;) {
    const size_t next = std::min(done, request.width - done);
    copy_bytes(stream, request.to + done, request.to, next,
               {.to_kind = request.to_kind, .from_kind = request.to_kind});
    done += next;
  }
}

Operation about_fill(const FillRequest& request, const Slot& slot) noexcept {
  Operation fill = about(slot, OperationKind::fill, operation);
  fill.to = request.to;
  fill.bytes = request.width * request.height;
  fill.to_kind = request.to_kind;
  fill.uses[0] = {MemoryAccess::write,
                  {request.to, request.pitch, request.width, request.height},
                  request.to_kind,
                  false};
  return fill;
}

void fill_request(StreamRef stream, const FillRequest& request) {
  CopyCall call{stream, operation};
  validate(request, operation);
  const CopyFacts facts = resolve(call, request);
  const Route route = choose_route(request, facts, call);
  if (route == Route::nothing) return;
  if (route == Route::refused_in_capture)
    throw_in_capture(call.slot, operation,
                     "the fill takes bytes from memory that does not live as long as a graph: set "
                     "1, 2 or 4 byte elements of device or pinned memory");
  const ScopedEvent event{[&] { return about_fill(request, call.slot); }};
  if (route == Route::direct) return fill_by_runtime(call, request, facts);
  if (route == Route::seeded) return fill_by_copies(call, request);
  fill_by_host_function(call, request);
}

}  // namespace

void fill_pattern(StreamRef stream, void* to, std::optional<MemoryKind> kind, const void* value,
                  size_t size, size_t count) {
  const size_t bytes = byte_size(count, size, operation);
  const auto* const element = static_cast<const unsigned char*>(value);
  const bool is_uniform =
      std::all_of(element, element + size, [&](unsigned char byte) { return byte == *element; });
  fill_request(stream, {static_cast<unsigned char*>(to), bytes, bytes, 1, element,
                        is_uniform ? 1 : size, kind});
}

}  // namespace detail

void fill_bytes(StreamRef stream, void* to, unsigned char value, size_t bytes) {
  detail::fill_request(stream,
                       {static_cast<unsigned char*>(to), bytes, bytes, 1, &value, 1, std::nullopt});
}

void fill_2d(StreamRef stream, void* to, size_t pitch, unsigned char value, size_t width,
             size_t height) {
  detail::fill_request(
      stream, {static_cast<unsigned char*>(to), pitch, width, height, &value, 1, std::nullopt});
}

}  // namespace runnel::inline RUNNEL_ABI
