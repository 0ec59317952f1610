// SPDX-License-Identifier: Apache-2.0
/// The files that the tool reads and writes. Results appear under their name only when they are whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace tool {

class InputFile {
 public:
  /// @throws Failure where it is missing, unreadable or a directory
  explicit InputFile(const std::filesystem::path& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Fills the buffer as far as the file goes, and says how far that was: less than the buffer holds only at the end.
  [[nodiscard]] std::size_t read(std::span<unsigned char> buffer);

  /// Nothing for a pipe, and for a file that does not know it.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }
  /// Whether that path leads to this very file, by whatever name. Devices are not asked: reading them takes nothing away.
  [[nodiscard]] bool is(const std::filesystem::path& path) const;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::optional<std::uint64_t> size_;
};

/// Writes to a temporary file beside the target, which takes the target's place at `commit()`. Until then the target is as it was;
/// the temporary file goes with the object, and when SIGINT, SIGTERM or SIGHUP ends the process. A device or pipe is written directly.
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

  /// Where the file will be, with links followed.
  [[nodiscard]] const std::filesystem::path& target() const noexcept { return target_; }
  /// False for a device or a pipe.
  [[nodiscard]] bool is_regular() const noexcept { return regular_; }

 private:
  [[noreturn]] void fail(int error) const;
  void open_beside();

  std::filesystem::path path_;
  std::filesystem::path target_;
  int descriptor_ = -1;
  bool regular_ = false;
  int temporary_slot_ = -1;  // in the list of what signals remove
};

}  // namespace tool
