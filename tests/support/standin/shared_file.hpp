// SPDX-License-Identifier: Apache-2.0
/// Memory that several processes share.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace standin {

/// A file in memory, which another process opens through /proc.
struct SharedFile {
  std::int64_t process = 0;
  std::int64_t number = -1;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  friend auto operator<=>(const SharedFile&, const SharedFile&) = default;
};
/// number is -1 if there is no room.
SharedFile make_file(std::size_t size);
/// An open file of this process, or -1: the other process or its file is gone.
int open_file(const SharedFile& file);
/// Maps an open file at that place, or anywhere if it is null. Null if that fails.
void* map_file(int number, std::size_t size, void* place = nullptr);

}  // namespace standin
