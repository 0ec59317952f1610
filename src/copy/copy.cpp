// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "base/check.hpp"
#include "base/pageable_policy.hpp"
#include "copy/run.hpp"
#include "stream/capture.hpp"
#include "stream/stream_call.hpp"

#include <cstdio>

namespace runnel::inline RUNNEL_ABI {
namespace {

constexpr const char* operation = "copy";

}  // namespace

Pageable default_pageable() noexcept { return detail::policy_of_thread; }
void set_default_pageable(Pageable policy) noexcept { detail::policy_of_thread = policy; }

const char* name(CopyResult result) noexcept {
  constexpr const char* names[] = {"nothing", "direct", "staged", "inlined", "blocked"};
  return names[static_cast<int>(result)];
}

CopyResult copy_bytes(StreamRef stream, void* to, const void* from, std::size_t bytes,
                      const CopyOptions& options) {
  const detail::Transfer row = detail::single_row(to, from, bytes);
  return detail::copy_request(stream, detail::request_of(row, options), operation);
}

CopyResult copy_2d(StreamRef stream, void* to, std::size_t to_pitch, const void* from,
                   std::size_t from_pitch, std::size_t width, std::size_t height,
                   const CopyOptions& options) {
  const detail::Transfer rows{static_cast<unsigned char*>(to),
                              to_pitch,
                              static_cast<const unsigned char*>(from),
                              from_pitch,
                              width,
                              height};
  return detail::copy_request(stream, detail::request_of(rows, options), operation);
}

namespace detail {

void read_element(StreamRef stream, void* to, const void* from, std::optional<MemoryKind> from_kind,
                  std::size_t bytes) {
  {
    const StreamCall call{stream, "read an element"};
    refuse_in_capture(call.slot(), call.operation(), refusal::nothing_runs);
  }
  copy_bytes(stream, to, from, bytes, {.pageable = Pageable::stage, .from_kind = from_kind});
  stream.synchronize();
}

void require_same_size(std::size_t to, std::size_t from, const StreamRef* stream) {
  if (to == from) return;
  char reason[200];
  std::snprintf(reason, sizeof reason, "the source has %zu elements, the destination %zu%s%s", from,
                to, stream == nullptr ? "" : ", in ",
                stream == nullptr ? "" : to_string(*stream).c_str());
  throw_error(errc::invalid_argument, operation, reason);
}

void require_index(std::size_t index, std::size_t size) {
  if (index < size) return;
  char reason[120];
  std::snprintf(reason, sizeof reason, "there is no element %zu: there are %zu, numbered from 0",
                index, size);
  throw_error(errc::invalid_argument, "set or get an element", reason);
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
