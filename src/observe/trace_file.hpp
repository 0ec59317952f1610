// SPDX-License-Identifier: Apache-2.0
/// The trace file.
#pragma once

#include <runnel/hooks.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A row of the trace: a stream of a device, the device's work of that stream, or a host thread,
/// whose device is -1.
struct TraceRow {
  int device;
  uint64_t id;
  bool is_work = false;  // timed by the vendor's profiling library
  friend auto operator<=>(const TraceRow&, const TraceRow&) = default;
};

/// Added to the profiling library's number of a stream that the library does not know, to form the
/// id of its row.
constexpr uint64_t foreign_stream = uint64_t{1} << 40;

struct TraceSlice {
  const char* name;
  const char* category;
  bool failed;
  TraceRow row;
  double begin;     // microseconds
  double end;       // below 0: unknown
  uint64_t number;  // 0: none
  uint64_t stream;
  uint64_t other;
  size_t bytes;
};

struct TraceContents {
  std::vector<TraceSlice> slices;
  std::map<TraceRow, std::string> rows;
  size_t dropped = 0;
  // The profiling library, or why there is none. Empty: the backend has none.
  std::string device_work;
};

/// Replaces `%p` in the name by the process id.
/// @throws std::bad_alloc
std::string trace_file_name(const char* name);
/// Whether the file can be written. Creates it if needed, and keeps its content.
bool can_write(const std::string& name) noexcept;
/// False if the file cannot be written.
[[nodiscard]] bool write_trace(const std::string& name, const TraceContents& contents) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
