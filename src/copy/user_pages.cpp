// SPDX-License-Identifier: Apache-2.0
#include "copy/user_pages.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Linux's struct procmap_query (6.11), which older headers lack: finds the mapping that contains
/// an address.
struct MappingQuery {
  uint64_t size = sizeof(MappingQuery);
  uint64_t query_flags = 0;
  uint64_t query_address = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t flags = 0;  // 1: readable, 2: writable
  uint64_t page_size = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;  // 0: no file
  uint64_t others[4] = {};
};
static_assert(sizeof(MappingQuery) == 104);

[[nodiscard]] uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<uintptr_t>(pointer);
}

enum class Mapping { unknown, refused, file, plain };

/// The least favourable of the mappings that contain the range. Sets `last` to the last of them.
Mapping mapping_of(Range range, PageUse use, Range& last) noexcept {
  static const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  Mapping least = Mapping::plain;
  const uintptr_t end = address_of(range.begin) + range.bytes;
  for (uintptr_t begin = address_of(range.begin); begin < end;) {
    MappingQuery query;
    query.query_address = begin;
    if (ioctl(maps, _IOWR('f', 17, MappingQuery), &query) != 0)
      return errno == ENOENT ? Mapping::refused : Mapping::unknown;
    if ((query.flags & (use == PageUse::read ? 1U : 2U)) == 0) return Mapping::refused;
    if (query.inode != 0) least = Mapping::file;
    last = {reinterpret_cast<const void*>(query.begin), query.end - query.begin};
    begin = query.end;
  }
  return least;
}

}  // namespace

bool look_usable(Range range, PageUse use, Range& plain) noexcept {
  const uintptr_t begin = address_of(range.begin), known = address_of(plain.begin);
  if (begin >= known && begin + range.bytes <= known + plain.bytes) return true;
  Range last{};
  const Mapping found = mapping_of(range, use, last);
  if (found == Mapping::plain) plain = last;
  return found == Mapping::plain || found == Mapping::unknown;
}

bool is_process_memory(const void* address) noexcept {
  unsigned char byte = 0;
  const iovec to{&byte, 1}, from{const_cast<void*>(address), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

bool populate_pages(Range range, PageUse use) noexcept {
  const size_t page = page_bytes();
  const uintptr_t first = address_of(range.begin) / page * page;
  const uintptr_t end = (address_of(range.begin) + range.bytes + page - 1) / page * page;
  if (Range last{}; mapping_of(range, use, last) == Mapping::refused) return false;
  const int error = populate(first, end, use);
  // If the system cannot populate pages, assume that they are usable.
  return error == 0 || error == EINVAL;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
