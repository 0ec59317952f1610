// SPDX-License-Identifier: Apache-2.0
#include "shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace standin {

SharedFile make_file(std::size_t size) {
  const int number = memfd_create("standin", MFD_CLOEXEC);
  if (number < 0) return {};
  struct stat found{};
  if (ftruncate(number, static_cast<off_t>(size)) != 0 || fstat(number, &found) != 0) {
    close(number);
    return {};
  }
  return {getpid(), number, found.st_ino, size};
}

int open_file(const SharedFile& file) {
  const std::string path =
      "/proc/" + std::to_string(file.process) + "/fd/" + std::to_string(file.number);
  const int number = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat found{};
  if (number < 0) return -1;
  if (fstat(number, &found) == 0 && found.st_ino == file.inode &&
      static_cast<std::uint64_t>(found.st_size) == file.size)
    return number;
  close(number);
  return -1;
}

void* map_file(int number, std::size_t size, void* place) {
  void* const mapped = mmap(place, size, PROT_READ | PROT_WRITE,
                            MAP_SHARED | (place != nullptr ? MAP_FIXED : 0), number, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace standin
