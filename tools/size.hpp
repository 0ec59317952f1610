// SPDX-License-Identifier: Apache-2.0
/// Sizes in bytes as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tool {

/// Parses a size such as "16M", "4096" or "1GiB": K, M, G and T are powers of 1024. @throws
/// Failure, with the name of the option, for any other text and for 0
[[nodiscard]] std::uint64_t parse_size(std::string_view option, std::string_view text);

/// Text such as "16 MiB", "1.5 GiB" or "700 bytes".
[[nodiscard]] std::string to_text(std::uint64_t bytes);

/// The memory that a program can still allocate, in bytes; the largest number if the system does
/// not report it.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace tool
