// SPDX-License-Identifier: Apache-2.0
/// Temporary files, which are also deleted when a signal ends the process.
#pragma once

#include <filesystem>

namespace tool {

struct Temporary {
  int slot;        ///< negative if the file could not be created
  int descriptor;  ///< open for writing
  int error;       ///< errno, if the file could not be created
};

/// Creates a file with a name from `pattern`, whose last six characters are replaced. Requires:
/// they are X.
[[nodiscard]] Temporary make_temporary(const std::filesystem::path& pattern);
[[nodiscard]] const char* temporary_name(int slot) noexcept;
/// Deletes the file.
void remove_temporary(int slot) noexcept;
/// Frees the slot without deleting the file, which was renamed.
void release_temporary(int slot) noexcept;

}  // namespace tool
