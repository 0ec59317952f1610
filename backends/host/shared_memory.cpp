// SPDX-License-Identifier: Apache-2.0
#include "shared_memory.hpp"

#include "base/announce.hpp"
#include "state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {
namespace {

/// The content of a handle. Device and inode show whether the process still has the same file under
/// this descriptor.
struct Content {
  std::int64_t process;
  std::int64_t file;
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t bytes;
};
static_assert(sizeof(Content) <= sizeof(backend::IpcBytes));

[[nodiscard]] void* map(int file, std::size_t bytes) noexcept {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)},
      size_{std::exchange(other.size_, 0)},
      file_{std::exchange(other.file_, -1)} {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  SharedMemory taken{std::move(other)};
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(file_, taken.file_);
  return *this;
}

SharedMemory::~SharedMemory() {
  // ThreadSanitizer does not know that the streams no longer use the memory.
  const sync::TsanIgnore ignore;
  if (data_ != nullptr) munmap(data_, size_);
  if (file_ >= 0) ::close(file_);
}

SharedMemory SharedMemory::make(std::size_t bytes) {
  SharedMemory memory;
  memory.file_ = memfd_create("runnel", MFD_CLOEXEC);
  if (memory.file_ < 0 || ftruncate(memory.file_, static_cast<off_t>(bytes)) != 0)
    throw std::bad_alloc{};
  memory.data_ = map(memory.file_, bytes);
  if (memory.data_ == nullptr) throw std::bad_alloc{};
  memory.size_ = bytes;
  return memory;
}

backend::status SharedMemory::open(SharedMemory& memory, const backend::IpcBytes& handle) {
  Content content;
  std::memcpy(&content, &handle, sizeof content);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(content.process),
                static_cast<long long>(content.file));
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) {
    const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return status_of(is_short                            ? errc::out_of_memory
                     : errno == EACCES || errno == EPERM ? errc::not_permitted
                                                         : errc::invalid_handle);
  }
  struct stat found{};
  const bool is_same = fstat(file, &found) == 0 && found.st_dev == content.device &&
                       found.st_ino == content.inode &&
                       static_cast<std::uint64_t>(found.st_size) == content.bytes;
  void* const mapped = is_same ? map(file, content.bytes) : nullptr;
  ::close(file);
  if (!is_same) return status_of(errc::invalid_handle);
  if (mapped == nullptr) return status_of(errc::out_of_memory);
  memory = SharedMemory{};
  memory.data_ = mapped;
  memory.size_ = content.bytes;
  return backend::ok;
}

void SharedMemory::write_handle(backend::IpcBytes& handle) const noexcept {
  struct stat found{};
  static_cast<void>(fstat(file_, &found));
  const Content content{getpid(), file_, found.st_dev, found.st_ino, size_};
  handle = {};
  std::memcpy(&handle, &content, sizeof content);
}

}  // namespace runnel::inline RUNNEL_ABI::host
