// SPDX-License-Identifier: Apache-2.0
/// Queries how much memory the machine, or its container, has left.
#pragma once

#include <runnel/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// Reads a system file line by line. Returns the first number that matches the scanf format, or
/// nothing.
inline std::optional<size_t> number_in(const char* path, const char* format) noexcept {
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return std::nullopt;
  char line[128];
  size_t number = 0;
  bool is_found = false;
  while (!is_found && std::fgets(line, sizeof line, file) != nullptr)
    is_found = std::sscanf(line, format, &number) == 1;
  std::fclose(file);
  return is_found ? std::optional{number} : std::nullopt;
}

/// How many bytes can be allocated before the system kills a process for lack of memory. The limit
/// of the container counts, too. Nothing if the system does not report it.
inline std::optional<size_t> available_memory() noexcept {
  const std::optional<size_t> machine = number_in("/proc/meminfo", "MemAvailable: %zu kB");
  if (!machine) return std::nullopt;
  const std::optional<size_t> limit = number_in("/sys/fs/cgroup/memory.max", "%zu");
  if (!limit) return *machine * 1024;
  const size_t used = number_in("/sys/fs/cgroup/memory.current", "%zu").value_or(0);
  return std::min(*machine * 1024, *limit - std::min(*limit, used));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
