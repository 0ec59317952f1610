// SPDX-License-Identifier: Apache-2.0
/// Numbers of bytes, as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tool {

/// "16M", "4096", "1GiB": K, M, G and T are powers of 1024. @throws Failure, which names the option, for anything else and for 0.
[[nodiscard]] std::uint64_t parse_size(std::string_view option, std::string_view text);

/// "16 MiB", "1.5 GiB", "700 bytes".
[[nodiscard]] std::string to_text(std::uint64_t bytes);

/// How much memory the machine could give to a program now; the largest number where it does not say.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace tool
