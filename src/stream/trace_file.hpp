// SPDX-License-Identifier: Apache-2.0
/// The file of the trace.
#pragma once

#include <runnel/hooks.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A row of the picture: a stream of a device, or a thread of the host, whose device is -1.
struct TraceRow {
  int device;
  std::uint64_t id;
  friend auto operator<=>(const TraceRow&, const TraceRow&) = default;
};

struct TraceSlice {
  const char* name;
  HookKind kind;
  bool failed;
  TraceRow row;
  double begin;  // microseconds
  double end;    // below 0: not known
  std::uint64_t number;
  std::uint64_t stream;
  std::uint64_t other;
  std::size_t bytes;
};

struct TraceContents {
  std::vector<TraceSlice> slices;
  std::map<TraceRow, std::string> rows;
  std::size_t dropped = 0;
};

/// The name, with `%p` replaced by the process's number. @throws std::bad_alloc
[[nodiscard]] std::string trace_file_name(const char* name);
/// Whether the file can be written. It is made, but what it has stays.
[[nodiscard]] bool can_write(const std::string& name) noexcept;
/// False if the file cannot be written.
[[nodiscard]] bool write_trace(const std::string& name, const TraceContents& contents) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
