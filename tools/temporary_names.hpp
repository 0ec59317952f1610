// SPDX-License-Identifier: Apache-2.0
/// Temporary files, which are also deleted when a signal ends the process.
#pragma once

#include <filesystem>

namespace tool {

struct Temporary {
  int slot;        ///< negative if the file could not be made
  int descriptor;  ///< open for writing
  int error;       ///< errno, if the file could not be made
};

/// Makes a file with that name, whose last six characters must be X and are replaced.
[[nodiscard]] Temporary make_temporary(const std::filesystem::path& pattern);
[[nodiscard]] const char* temporary_name(int slot) noexcept;
/// Deletes the file.
void remove_temporary(int slot) noexcept;
/// Frees the slot, after the file was renamed.
void forget_temporary(int slot) noexcept;

}  // namespace tool
