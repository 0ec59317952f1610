// SPDX-License-Identifier: Apache-2.0
#include <runnel/world.hpp>

#include "base/check.hpp"
#include "base/parse_size.hpp"
#include "base/sync.hpp"

#include <runnel/detail/deadline.hpp>
#include <runnel/error.hpp>

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

using namespace detail;
namespace {

constexpr const char* finding = "find the processes of this program";
constexpr const char* rendezvous = "meet the other processes";

std::string new_number() {
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

/// Broadcasts some bytes between processes that share only a folder.
///
/// Each process writes a file of its own, PATH.1, PATH.2, ..., with a number that is unique to the
/// run. Process 0 answers with the file PATH: a number of its own, those of the others, and then
/// the bytes. A process that finds its own number there knows that the file belongs to this run.
/// Files are written under a temporary name and renamed, so that no process reads an incomplete
/// file.
///
/// A process that has read the bytes acknowledges them in its own file, with process 0's number.
/// After all acknowledgements process 0 removes PATH, and then each other process removes its own
/// file. Files of a run that has died are overwritten.
class RendezvousFile {
 public:
  RendezvousFile(std::string path, int rank, int size, std::chrono::milliseconds patience)
      : path_{std::move(path)}, rank_{rank}, size_{size}, patience_{patience} {}
  /// @throws errc::timed_out if a process does not take part; errc::not_permitted if the file
  /// cannot be written
  void broadcast(void* bytes, size_t count) const {
    auto* const numbers = static_cast<unsigned char*>(bytes);
    if (size_ > 1) rank_ == 0 ? publish({numbers, count}) : receive({numbers, count});
  }

 private:
  std::string path_of(int rank) const { return path_ + "." + std::to_string(rank); }
  /// Polls until `done()` returns true. @throws errc::timed_out with the reason that `what()`
  /// returns
  template <class F, class G>
  void await(F done, G what) const {
    for (const auto end = deadline_after(patience_); !done();
         sync::sleep_for(std::chrono::milliseconds{2}))
      if (sync::Clock::now() >= end) throw_error(errc::timed_out, rendezvous, what().c_str());
  }
  void publish(std::span<const unsigned char> bytes) const;
  void receive(std::span<unsigned char> bytes) const;

  std::string path_;
  int rank_, size_;
  std::chrono::milliseconds patience_;
};

void RendezvousFile::publish(std::span<const unsigned char> bytes) const {
  const std::string own = new_number();
  std::string written;
  int absent = 0;
  const auto all_have_it = [&] {
    std::string text = own;
    int answers = 0;
    for (int rank = 1; rank < size_; ++rank) {
      // The process's own number, then the number of process 0. A different second number is from
      // an earlier run.
      const auto words = read(path_of(rank));
      if (words.empty() || (words.size() > 1 && words[1] != own)) return absent = rank, false;
      text.append(" ").append(words[0]);
      answers += words.size() > 1;
    }
    if (answers == size_ - 1) return true;
    for (const unsigned char byte : bytes) text.append(" ").append(std::to_string(byte));
    if (text != written) write(path_, text);
    written = text;
    return false;
  };
  await(all_have_it, [&] {
    return written.empty() ? "process " + std::to_string(absent) + " did not come"
                           : "a process did not read " + path_;
  });
  std::remove(path_.c_str());
}

void RendezvousFile::receive(std::span<unsigned char> bytes) const {
  const std::string own = new_number();
  const auto place = static_cast<size_t>(rank_), begin = static_cast<size_t>(size_);
  write(path_of(rank_), own);
  std::vector<std::string> words;
  const auto is_answered = [&] {
    words = read(path_);
    return place < words.size() && words[place] == own;
  };
  await(is_answered, [&] { return "process 0 did not write " + path_; });
  if (words.size() != begin + bytes.size())
    throw_invalid_argument(rendezvous, "the processes do not agree about the number of bytes");
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(std::stoi(words[begin + i]));
  write(path_of(rank_), own + " " + words[0]);
  await([&] { return !is_answered(); }, [&] { return "another process did not read " + path_; });
  std::remove(path_of(rank_).c_str());
}

/// The names of a launcher's variables.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
};
constexpr Launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}};

/// Empty if the variable is not set.
std::string text_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

int number_of(const char* variable) {
  const std::string text = text_of(variable);
  const std::optional<int> number = parse_number<int>(text);
  if (number && *number >= 0) return *number;
  throw_formatted(errc::invalid_argument, finding, backend::ok, "%s is %s%s", variable,
                  text.empty() ? "not set" : "no number from 0 to 2147483647: ", text.c_str());
}

void require_rank(int rank, int size) {
  if (rank < 0 || rank >= size)
    throw_formatted(errc::invalid_argument, finding, backend::ok, "there is no process %d of %d",
                    rank, size);
}

[[nodiscard]] World world_of(const Launcher& launcher) {
  const int rank = number_of(launcher.rank), size = number_of(launcher.size);
  require_rank(rank, size);
  World made;
  if (size > 1) {
    const std::string path = text_of("RUNNEL_WORLD_FILE");
    if (path.empty())
      throw_error(errc::not_supported, finding,
                  "RUNNEL_WORLD_FILE has to name a file in which the processes can meet");
    made = World::from_file(path, rank, size);
  }
  if (!text_of(launcher.local_rank).empty()) made.local_rank = number_of(launcher.local_rank);
  return made;
}

}  // namespace

World World::from_environment() {
  for (const Launcher& each : launchers)
    if (!text_of(each.rank).empty()) return world_of(each);
  throw_error(errc::not_supported, finding,
              "no launcher has set RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK");
}

World World::from_file(const std::string& path, int rank, int size,
                       std::chrono::milliseconds patience) {
  if (path.empty()) throw_invalid_argument(finding, "the path is empty");
  require_rank(rank, size);
  World made{.rank = rank, .size = size, .local_rank = rank};
  made.broadcast = [file = RendezvousFile{path, rank, size, patience}](void* bytes, size_t count) {
    file.broadcast(bytes, count);
  };
  return made;
}

}  // namespace runnel::inline RUNNEL_ABI
