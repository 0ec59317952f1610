// SPDX-License-Identifier: Apache-2.0
#include "observe/trace_file.hpp"

#include <unistd.h>

#include <charconv>
#include <string_view>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Writes text within quotes. Bytes outside printable ASCII become question marks.
void put_text(std::FILE* file, std::string_view text) noexcept {
  std::fputc('"', file);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') std::fputc('\\', file);
    std::fputc(byte < 0x20 || byte >= 0x7f ? '?' : c, file);
  }
  std::fputc('"', file);
}

/// Viewers group rows by process: number 1 is the host, and each device has its own.
int process_of(const TraceRow& row) noexcept { return row.device + 2; }

/// Within a process, viewers identify rows by the thread number.
unsigned long long thread_of(const TraceRow& row) noexcept {
  constexpr unsigned long long work = 1ULL << 41;
  return row.id + (row.is_work ? work : 0);
}

void put_label(std::FILE* file, const char* what, const TraceRow& row,
               std::string_view name) noexcept {
  std::fprintf(
      file,
      ",\n{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %llu, \"args\": {\"name\": ",
      what, process_of(row), thread_of(row));
  put_text(file, name);
  std::fputs("}}", file);
}

void put_rows(std::FILE* file, const TraceContents& contents) noexcept {
  int last = -2;
  int index = 0;
  for (const auto& [row, name] : contents.rows) {
    if (row.device != last) {
      char process[32] = "host";
      if (row.device >= 0) std::snprintf(process, sizeof process, "device %d", row.device);
      put_label(file, "process_name", row, process);
      last = row.device;
    }
    put_label(file, "thread_name", row, name);
    if (row.device >= 0)  // a device row stands below its stream
      std::fprintf(file,
                   ",\n{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": %d, \"tid\": "
                   "%llu, \"args\": {\"sort_index\": %d}}",
                   process_of(row), thread_of(row), ++index);
  }
}

/// Microseconds. The point does not depend on the program's locale, as that of printf() does.
void put_time(std::FILE* file, const char* name, double time) noexcept {
  char text[64];
  const char* const end =
      std::to_chars(text, text + sizeof text, time, std::chars_format::fixed, 3).ptr;
  std::fprintf(file, ", \"%s\": %.*s", name, static_cast<int>(end - text), text);
}

void put_slice(std::FILE* file, const TraceSlice& slice) noexcept {
  std::fputs(",\n{\"name\": ", file);
  put_text(file, slice.name);
  std::fprintf(file, ", \"cat\": \"%s\", \"pid\": %d, \"tid\": %llu", slice.category,
               process_of(slice.row), thread_of(slice.row));
  put_time(file, "ts", slice.begin);
  const bool has_end = slice.end >= slice.begin;
  if (has_end) put_time(file, "dur", slice.end - slice.begin);
  std::fputs(
      has_end ? ", \"ph\": \"X\", \"args\": {" : ", \"ph\": \"i\", \"s\": \"t\", \"args\": {",
      file);
  const char* separator = "";
  const auto put = [&](const char* name, unsigned long long value) {
    if (value == 0) return;
    std::fprintf(file, "%s\"%s\": %llu", separator, name, value);
    separator = ", ";
  };
  put("number", slice.number);
  put("stream", slice.stream);
  put("waits for stream", slice.other);
  put("bytes", slice.bytes);
  if (slice.failed) std::fprintf(file, "%s\"failed\": true", separator);
  std::fputs("}}", file);
}

}  // namespace

std::string trace_file_name(const char* name) {
  std::string text{name};
  const std::string number = std::to_string(getpid());
  for (size_t at = text.find("%p"); at != std::string::npos;
       at = text.find("%p", at + number.size()))
    text.replace(at, 2, number);
  return text;
}

bool can_write(const std::string& name) noexcept {
  std::FILE* const file = std::fopen(name.c_str(), "ae");
  if (file != nullptr) std::fclose(file);
  return file != nullptr;
}

bool write_trace(const std::string& name, const TraceContents& contents) noexcept {
  std::FILE* const file = std::fopen(name.c_str(), "we");
  if (file == nullptr) return false;
  std::fprintf(file,
               "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"library\": \"runnel\", \"events "
               "left out\": %zu",
               contents.dropped);
  if (!contents.device_work.empty()) {
    std::fputs(", \"work on the device\": ", file);
    put_text(file, contents.device_work);
  }
  std::fputs("}, \"traceEvents\": [\n", file);
  std::fputs(
      "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": 1, \"tid\": 0, \"args\": "
      "{\"sort_index\": 0}}",
      file);
  put_rows(file, contents);
  for (const TraceSlice& slice : contents.slices) put_slice(file, slice);
  std::fputs("\n]}\n", file);
  const bool failed = std::ferror(file) != 0;
  return std::fclose(file) == 0 && !failed;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
