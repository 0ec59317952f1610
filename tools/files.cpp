// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include "failure.hpp"
#include "temporary_names.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tool {

namespace {

std::string reason(int error) { return std::strerror(error); }

/// Advice for an error of the file system.
const char* advice(int error) {
  switch (error) {
    case ENOENT:
      return "; check the name and its directory";
    case EACCES:
    case EPERM:
      return "; change its permissions or name another";
    case ENOSPC:
    case EDQUOT:
      return "; free some space or name a file elsewhere";
    case EROFS:
      return "; name a file elsewhere";
    case EFBIG:
      return "; raise the limit (ulimit -f) or name a file elsewhere";
    case EMFILE:
      return "; raise the limit (ulimit -n)";
    default:
      return "";
  }
}

template <class Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// The descriptor of this process that a path names, such as /dev/fd/3 or /proc/self/fd/3.
std::optional<int> descriptor_of(const std::filesystem::path& path) {
  std::error_code none;
  const auto own = std::filesystem::canonical("/proc/self/fd", none);
  if (none || std::filesystem::canonical(path.parent_path(), none) != own || none)
    return std::nullopt;
  const std::string digits = path.filename().native();
  int descriptor = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), descriptor);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return descriptor;
}

/// Follows the links of a path, even if their target does not exist. Stops at a path that names a
/// descriptor, because its file is open.
std::filesystem::path follow_links(std::filesystem::path path) {
  constexpr int max_links = 40;  // The limit of Linux.
  for (int i = 0; i < max_links && !descriptor_of(path); ++i) {
    std::error_code none;
    const auto next = std::filesystem::read_symlink(path, none);
    if (none) break;
    path = path.parent_path() / next;
  }
  return path;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_{path} {
  descriptor_ = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (descriptor_ < 0) fail(errno);
  struct ::stat status{};
  ::fstat(descriptor_, &status);
  if (S_ISDIR(status.st_mode)) {
    ::close(descriptor_);
    throw Failure(in_quotes(path.native()) + " is a directory; name a file to read");
  }
  // Files under /proc report size 0 and have content.
  if (S_ISREG(status.st_mode) && status.st_size > 0)
    size_ = static_cast<std::uint64_t>(status.st_size);
  static_cast<void>(::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL));
}

InputFile::~InputFile() { ::close(descriptor_); }

std::size_t InputFile::read(std::span<unsigned char> buffer) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const auto got =
        retry([&] { return ::read(descriptor_, buffer.data() + done, buffer.size() - done); });
    if (got < 0) fail(errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  at_ += done;
  if (done < buffer.size()) require_whole();
  return done;
}

void InputFile::require_whole() const {
  struct ::stat now{};
  // Files under /sys end before the size that they report, and the size does not change.
  if (!size_ || at_ >= *size_ || ::fstat(descriptor_, &now) != 0 ||
      static_cast<std::uint64_t>(now.st_size) >= *size_)
    return;
  throw Failure("cannot read " + in_quotes(path_.native()) +
                ": it became shorter while it was read, and was read to byte " +
                std::to_string(at_) + "; run again when nothing changes it");
}

void InputFile::fail(int error) const {
  throw Failure("cannot read " + in_quotes(path_.native()) + ": " + reason(error) + advice(error));
}

bool InputFile::is(const std::filesystem::path& path) const {
  struct ::stat mine{}, other{};
  return ::fstat(descriptor_, &mine) == 0 && S_ISREG(mine.st_mode) &&
         ::stat(path.c_str(), &other) == 0 && mine.st_dev == other.st_dev &&
         mine.st_ino == other.st_ino;
}

OutputFile::OutputFile(const std::filesystem::path& path, const InputFile& input)
    : path_{path}, target_{path} {
  if (path.empty()) throw Failure("the name of the file to write is empty; name a file");
  if (input.is(path))
    throw Failure(in_quotes(path.native()) +
                  " is the file to read, under this or another name; write to another file");

  const std::filesystem::path followed = follow_links(path);
  struct ::stat status{};
  if (const auto descriptor = descriptor_of(followed)) {
    open_directly(::fcntl(*descriptor, F_DUPFD_CLOEXEC, 0));
  } else if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) fail(errno);
    target_ = followed;
    open_new();
  } else if (S_ISDIR(status.st_mode)) {
    throw Failure(in_quotes(path.native()) + " is a directory; name a file to write");
  } else if (S_ISREG(status.st_mode)) {
    // rename() would replace the file without checking its permissions, so check them here.
    if (::access(path.c_str(), W_OK) != 0) fail(errno);
    target_ = std::filesystem::canonical(path);
    open_temporary();
    take_mode_and_owner(status);
  } else {
    open_directly(retry([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }));
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (temporary_slot_ >= 0) remove_temporary(temporary_slot_);
}

/// Uses `descriptor` for the output. If it is negative, fails with errno.
void OutputFile::open_directly(int descriptor) {
  if (descriptor < 0) fail(errno);
  if ((::fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY) {
    ::close(descriptor);
    fail(EBADF);
  }
  descriptor_ = descriptor;
  // Store the path of the file, so that is_same() recognises the file under its own name. A pipe
  // has no path.
  std::error_code none;
  if (const auto file = std::filesystem::canonical(path_, none); !none) target_ = file;
}

void OutputFile::open_new() {
  if (!target_.has_filename())
    throw Failure(in_quotes(path_.native()) + " is a directory; name a file to write");
  std::error_code none;
  const auto directory =
      std::filesystem::canonical(target_.has_parent_path() ? target_.parent_path() : ".", none);
  if (none) fail(none.value());
  target_ = directory / target_.filename();
  open_temporary();
}

void OutputFile::open_temporary() {
  const Temporary made = make_temporary(target_.parent_path() / ".runnel-XXXXXX");
  if (made.slot < 0) fail(made.error);
  descriptor_ = made.descriptor;
  temporary_slot_ = made.slot;
  replaced_ = true;
  const ::mode_t mask = ::umask(0);
  ::umask(mask);
  static_cast<void>(::fchmod(descriptor_, 0666 & ~mask));
}

void OutputFile::take_mode_and_owner(const struct ::stat& status) {
  static_cast<void>(::fchmod(descriptor_, status.st_mode & 07777));
  if (::fchown(descriptor_, status.st_uid, status.st_gid) != 0) {
    // Without the permission to change the owner, the new file belongs to the user, like every new
    // file.
  }
}

void OutputFile::write(std::span<const unsigned char> bytes) {
  while (!bytes.empty()) {
    const auto put = retry([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    if (put < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void OutputFile::close() {
  if (descriptor_ < 0) return;
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0 && errno != EINTR) fail(errno);
}

void OutputFile::commit() {
  close();
  if (temporary_slot_ < 0) return;
  if (::rename(temporary_name(temporary_slot_), target_.c_str()) != 0) fail(errno);
  release_temporary(temporary_slot_);
  temporary_slot_ = -1;
}

void OutputFile::fail(int error) const {
  throw Failure("cannot write " + in_quotes(path_.native()) + ": " + reason(error) + advice(error));
}

}  // namespace tool
