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

/// A row of the picture: a stream of a device, what the device did of that stream, or a thread of
/// the host, whose device is -1.
struct TraceRow {
  int device;
  std::uint64_t id;
  bool is_work = false;  // as the vendor's profiling library has timed it
  friend auto operator<=>(const TraceRow&, const TraceRow&) = default;
};

/// Is added to the profiling library's number of a stream that runnel does not know, for the id of
/// its row.
constexpr std::uint64_t foreign_stream = std::uint64_t{1} << 40;

struct TraceSlice {
  const char* name;
  const char* category;
  bool failed;
  TraceRow row;
  double begin;          // microseconds
  double end;            // below 0: not known
  std::uint64_t number;  // 0: none
  std::uint64_t stream;
  std::uint64_t other;
  std::size_t bytes;
};

struct TraceContents {
  std::vector<TraceSlice> slices;
  std::map<TraceRow, std::string> rows;
  std::size_t dropped = 0;
  // which profiling library times the devices' work, or why none does; empty: none could
  std::string device_work;
};

/// The name, with `%p` replaced by the process's number. @throws std::bad_alloc
[[nodiscard]] std::string trace_file_name(const char* name);
/// Whether the file can be written. It is made, but what it has stays.
[[nodiscard]] bool can_write(const std::string& name) noexcept;
/// False if the file cannot be written.
[[nodiscard]] bool write_trace(const std::string& name, const TraceContents& contents) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
