// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous_file.hpp"

#include "base/check.hpp"
#include "base/sync.hpp"

#include <runnel/detail/deadline.hpp>
#include <runnel/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

constexpr const char* rendezvous = "meet the other processes";

[[nodiscard]] std::string new_number() {
  std::random_device random;
  std::ostringstream text;
  text << std::hex << random() << random() << random() << 'p' << getpid();
  return text.str();
}

/// The words of a file; empty if the file does not exist.
[[nodiscard]] std::vector<std::string> read(const std::string& path) {
  std::ifstream file{path};
  return {std::istream_iterator<std::string>{file}, {}};
}

void write(const std::string& path, const std::string& text) {
  const std::string beside = path + "." + new_number();
  std::ofstream file{beside};
  file << text << '\n';
  file.close();
  if (file.good() && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const std::string reason = "cannot write " + path + ": " + std::strerror(errno);
  std::remove(beside.c_str());
  throw_error(errc::not_permitted, rendezvous, reason.c_str());
}

/// Writes each byte as two letters from `a` to `p`.
[[nodiscard]] std::string letters_of(const void* bytes, std::size_t count) {
  std::string text;
  for (const auto* byte = static_cast<const unsigned char*>(bytes); count > 0; --count, ++byte) {
    text += static_cast<char>('a' + *byte / 16);
    text += static_cast<char>('a' + *byte % 16);
  }
  return text;
}

/// Returns false if the text has another number of bytes.
[[nodiscard]] bool read_letters(const std::string& text, void* bytes, std::size_t count) {
  if (text.size() != 2 * count) return false;
  for (std::size_t i = 0; i < count; ++i)
    static_cast<unsigned char*>(bytes)[i] =
        static_cast<unsigned char>((text[2 * i] - 'a') * 16 + text[2 * i + 1] - 'a');
  return true;
}

/// Polls until `done()` returns true. @throws errc::timed_out with the reason that `what()` returns
template <class F, class G>
void await(std::chrono::milliseconds patience, F done, G what) {
  for (const auto end = deadline_after(patience); !done();
       sync::sleep_for(std::chrono::milliseconds{2}))
    if (sync::Clock::now() >= end) throw_error(errc::timed_out, rendezvous, what().c_str());
}

}  // namespace

void RendezvousFile::broadcast(void* bytes, std::size_t count) const {
  if (size_ > 1) rank_ == 0 ? publish(bytes, count) : receive(bytes, count);
}

void RendezvousFile::publish(const void* bytes, std::size_t count) const {
  const std::string own = new_number(), content = letters_of(bytes, count);
  std::vector<std::string> written;
  int absent = 0;
  const auto all_have_it = [&] {
    std::vector<std::string> numbers;
    int answers = 0;
    for (int rank = 1; rank < size_; ++rank) {
      // The process's own number, then the number of process 0. A different second number is from
      // an earlier run.
      const auto words = read(path_of(rank));
      if (words.empty() || (words.size() > 1 && words[1] != own)) return absent = rank, false;
      numbers.push_back(words[0]);
      answers += words.size() > 1;
    }
    if (answers == size_ - 1) return true;
    if (numbers == written) return false;
    std::string text = own;
    text.append(" ").append(content);
    for (const std::string& each : numbers) text.append(" ").append(each);
    write(path_, text);
    written = numbers;
    return false;
  };
  await(patience_, all_have_it, [&] {
    return written.empty() ? "process " + std::to_string(absent) + " did not come"
                           : "a process did not read " + path_;
  });
  std::remove(path_.c_str());
}

void RendezvousFile::receive(void* bytes, std::size_t count) const {
  const std::string own = new_number();
  write(path_of(rank_), own);
  const auto answer = [&] {
    auto words = read(path_);
    const std::size_t place = static_cast<std::size_t>(rank_) + 1;
    return place < words.size() && words[place] == own ? words : std::vector<std::string>{};
  };
  std::vector<std::string> found;
  await(
      patience_, [&] { return !(found = answer()).empty(); },
      [&] { return "process 0 did not write " + path_; });
  if (!read_letters(found[1], bytes, count))
    throw_invalid_argument(rendezvous, "the processes do not agree about the number of bytes");
  std::string text = own;
  write(path_of(rank_), text.append(" ").append(found[0]));
  await(
      patience_, [&] { return answer().empty(); },
      [&] { return "another process did not read " + path_; });
  std::remove(path_of(rank_).c_str());
}

}}}  // namespace runnel::RUNNEL_ABI::detail
