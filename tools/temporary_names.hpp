// SPDX-License-Identifier: Apache-2.0
/// Temporary files that also go when a signal ends the process.
#pragma once

#include <filesystem>

namespace tool {

struct Temporary {
  int slot;        ///< negative where there is none
  int descriptor;  ///< open for writing
  int error;       ///< errno where there is none
};

/// Makes a file of that name, whose last six characters are X and get replaced.
[[nodiscard]] Temporary make_temporary(const std::filesystem::path& pattern);
[[nodiscard]] const char* temporary_name(int slot) noexcept;
/// Deletes the file.
void remove_temporary(int slot) noexcept;
/// The file has another name now.
void forget_temporary(int slot) noexcept;

}  // namespace tool
