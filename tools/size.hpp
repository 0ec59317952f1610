// SPDX-License-Identifier: Apache-2.0
/// Sizes in bytes, as users write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tool {

/// "16M", "4096", "1GiB": K, M, G and T are powers of 1024. @throws Failure for any other text and
/// for 0; it names the option.
[[nodiscard]] std::uint64_t parse_size(std::string_view option, std::string_view text);

/// "16 MiB", "1.5 GiB", "700 bytes".
[[nodiscard]] std::string to_text(std::uint64_t bytes);

/// The memory that a program can still allocate, in bytes; the largest number if the system does
/// not tell.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace tool
