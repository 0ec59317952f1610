// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "base/check.hpp"
#include "base/pageable_policy.hpp"
#include "copy/run.hpp"
#include "slot/capture.hpp"
#include "slot/stream_call.hpp"

namespace runnel::inline RUNNEL_ABI {

using namespace detail;

namespace {

constexpr const char* operation = "copy";

}  // namespace

Pageable default_pageable() noexcept { return policy_of_thread; }
void set_default_pageable(Pageable policy) noexcept { policy_of_thread = policy; }

const char* name(CopyResult result) noexcept {
  constexpr const char* names[] = {"nothing", "direct", "staged", "inlined", "blocked"};
  return names[static_cast<int>(result)];
}

CopyResult copy_bytes(StreamRef stream, void* to, const void* from, size_t bytes,
                      const CopyOptions& options) {
  const Transfer row = single_row(to, from, bytes);
  return copy_request(stream, request_of(row, options), operation);
}

CopyResult copy_2d(StreamRef stream, void* to, size_t to_pitch, const void* from, size_t from_pitch,
                   size_t width, size_t height, const CopyOptions& options) {
  const Transfer rows{static_cast<unsigned char*>(to),
                      to_pitch,
                      static_cast<const unsigned char*>(from),
                      from_pitch,
                      width,
                      height};
  return copy_request(stream, request_of(rows, options), operation);
}

namespace detail {

void read_element(StreamRef stream, void* to, const void* from, std::optional<MemoryKind> from_kind,
                  size_t bytes) {
  {
    const StreamCall call{stream, "read an element"};
    refuse_in_capture(call.slot(), call.operation(), refusal::nothing_runs);
  }
  try {
    copy_bytes(stream, to, from, bytes, {.pageable = Pageable::stage, .from_kind = from_kind});
    stream.synchronize();
  } catch (...) {
    // The place for the element ends with the call. The first exception is the one that is thrown.
    std::error_code code;
    stream.synchronize(code);
    throw;
  }
}

void require_same_size(size_t to, size_t from, const StreamRef* stream) {
  if (to == from) return;
  throw_formatted(errc::invalid_argument, operation, backend::ok,
                  "the source has %zu elements, the destination %zu%s%s", from, to,
                  stream == nullptr ? "" : ", in ",
                  stream == nullptr ? "" : to_string(*stream).c_str());
}

void require_index(size_t index, size_t size) {
  if (index < size) return;
  throw_formatted(errc::invalid_argument, "set or get an element", backend::ok,
                  "there is no element %zu: there are %zu, numbered from 0", index, size);
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
