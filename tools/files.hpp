// SPDX-License-Identifier: Apache-2.0
/// The files that the tool reads and writes. A result appears under its name only when it is
/// complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

struct stat;

namespace tool {

class InputFile {
 public:
  /// @throws Failure if the file is missing, unreadable or a directory
  explicit InputFile(const std::filesystem::path& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Fills the buffer and returns the number of bytes, which is smaller than the buffer only at the
  /// end of the file.
  /// @throws Failure if reading fails, or if the file has become shorter since it was opened
  [[nodiscard]] std::size_t read(std::span<unsigned char> buffer);

  /// The size of the file; empty for a pipe, and for a file that reports no size.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }
  /// Whether `path` refers to the same regular file, under this or another name. Always false for
  /// devices, because writing to a device does not change what is read from it.
  [[nodiscard]] bool is(const std::filesystem::path& path) const;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void require_whole() const;
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  int descriptor_;
  std::optional<std::uint64_t> size_;
  std::uint64_t at_ = 0;  // The offset of the next byte to read.
};

/// Writes to a temporary file in the target's folder. `commit()` replaces the target by it; until
/// then the target is unchanged. The temporary file is deleted by the destructor, and if a signal
/// ends the process that another process or a time limit has sent. Links are followed, also to a
/// target that does not exist yet. Two kinds of output are written directly: devices and pipes; and
/// descriptors that the process already has (/dev/stdout), because their file may contain bytes
/// that must stay, and other processes may append to it.
class OutputFile {
 public:
  /// @throws Failure if the file cannot be written, or is the input
  OutputFile(const std::filesystem::path& path, const InputFile& input);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// @throws Failure, for instance when the disk is full
  void write(std::span<const unsigned char> bytes);
  /// Closes the file after the last write. @throws Failure if writing failed
  void close();
  /// Closes the file and moves it to the target.
  void commit();

  /// Whether commit() replaces the target; false if the target is written directly.
  [[nodiscard]] bool is_replaced() const noexcept { return replaced_; }
  /// Whether both write to the same file.
  [[nodiscard]] bool is_same(const OutputFile& other) const noexcept {
    return target_ == other.target_;
  }

 private:
  [[noreturn]] void fail(int error) const;
  void open_directly(int descriptor);
  void open_new();
  void open_temporary();
  void take_mode_and_owner(const struct ::stat& status);

  std::filesystem::path path_;
  std::filesystem::path target_;  // The path of the result, with links followed.
  int descriptor_ = -1;
  bool replaced_ = false;
  int temporary_slot_ = -1;  // The file's slot in the list of files that a signal handler deletes.
};

}  // namespace tool
