// SPDX-License-Identifier: Apache-2.0
/// The files that the tool reads and writes. Results appear under their name only when they are whole.
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
  /// @throws Failure where it is missing, unreadable or a directory
  explicit InputFile(const std::filesystem::path& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Fills the buffer as far as the file goes, and says how far that was: less than the buffer holds only at the end.
  /// @throws Failure also where the file has become shorter since it was opened
  [[nodiscard]] std::size_t read(std::span<unsigned char> buffer);

  /// Nothing for a pipe, and for a file that does not know it.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }
  /// Whether that path leads to this very file, by whatever name. Devices are not asked: reading them takes nothing away.
  [[nodiscard]] bool is(const std::filesystem::path& path) const;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void require_whole() const;

  std::filesystem::path path_;
  int descriptor_;
  std::optional<std::uint64_t> size_;
  std::uint64_t read_ = 0;  // bytes so far
};

/// Writes to a temporary file beside the target, which takes the target's place at `commit()`. Until then the target is as it was;
/// the temporary file goes with the object, and when SIGINT, SIGTERM or SIGHUP ends the process. A link is followed, also where its
/// target does not exist yet. Two kinds of output are written directly: a device or a pipe, and a descriptor that the process already has
/// (/dev/stdout), whose file may hold bytes that must stay, and whose owner may append to it.
class OutputFile {
 public:
  /// @throws Failure where it cannot be written, or is the input
  OutputFile(const std::filesystem::path& path, const InputFile& input);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// @throws Failure, for instance when the disk is full
  void write(std::span<const unsigned char> bytes);
  /// Everything written: finds out whether it really was. @throws Failure
  void close();
  /// Closes, and puts the file in its place.
  void commit();

  /// Whether the target is a file that gets replaced; false for what is written directly.
  [[nodiscard]] bool is_replaced() const noexcept { return replaced_; }
  /// Whether the two would write to one file.
  [[nodiscard]] bool is_same(const OutputFile& other) const noexcept { return target_ == other.target_; }

 private:
  [[noreturn]] void fail(int error) const;
  void open_directly(int descriptor);
  void open_new();
  void open_beside();
  void take_mode_and_owner(const struct ::stat& status);

  std::filesystem::path path_;
  std::filesystem::path target_;  // where the file will be, with links followed
  int descriptor_ = -1;
  bool replaced_ = false;
  int temporary_slot_ = -1;  // in the list of what signals remove
};

}  // namespace tool
