// SPDX-License-Identifier: Apache-2.0
#include "reading.hpp"

#include "json.hpp"
#include "launch_byte_kernel.hpp"
#include "size.hpp"

#include <runnel/config.hpp>
#include <runnel/device.hpp>

#include <cstdio>
#include <filesystem>
#include <utility>

namespace tool {

namespace {

/// Whether the file exists and is a pipe, a device or a directory.
bool is_no_regular_file(const std::string& name) {
  std::error_code none;
  const auto status = std::filesystem::status(name, none);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

[[noreturn]] void throw_no_multiple(const std::string& what, std::size_t width) {
  throw Failure(what + ", which is no multiple of the " + std::to_string(width) +
                " bytes of a number; check the file, and choose the --type of its numbers");
}

runnel::Device own_device(const ReadingCommand& command, const Processes& processes) {
  if (const char* why = why_no_byte_kernel()) throw Failure(why);
  const int count = std::max(1, runnel::Device::count());
  return chosen_device(command.streaming.device.value_or(processes.local_rank() % count));
}

}  // namespace

ProcessShare::ProcessShare(const std::vector<std::string>& names, std::size_t width,
                           const Processes& processes)
    : width_{width} {
  const auto rank = static_cast<std::uint64_t>(processes.rank()),
             count = static_cast<std::uint64_t>(processes.size());
  for (const std::string& name : names) {
    if (rank != 0 && is_no_regular_file(name)) continue;
    auto file = std::make_unique<InputFile>(name);
    const bool is_whole = !file->size();
    const std::uint64_t size = file->size().value_or(0);
    if (size % width != 0)
      throw_no_multiple(in_quotes(name) + " has " + std::to_string(size) + " bytes", width);
    // The file is opened again when it is read, because there may be more files than a process can
    // have open. A pipe stays open.
    if (file->can_be_opened_again()) file.reset();
    pieces_.push_back({name, size_of_all_, size_of_all_ + size, is_whole, std::move(file)});
    size_of_all_ += size;
  }
  const std::uint64_t elements = size_of_all_ / width, share = elements / count,
                      more = elements % count;
  const auto begin_of = [&](std::uint64_t process) {
    return width * (share * process + std::min(process, more));
  };
  restrict_to(begin_of(rank), begin_of(rank + 1));
  if (rank != 0) std::erase_if(pieces_, [](const Piece& piece) { return piece.is_whole; });
}

/// Restricts the files with a known size to the bytes [first, last) of their concatenation.
void ProcessShare::restrict_to(std::uint64_t first, std::uint64_t last) {
  size_ = last - first;
  std::uint64_t begin = 0;
  for (Piece& piece : pieces_) {
    if (piece.is_whole) {
      size_.reset();
      continue;
    }
    begin = piece.first;
    piece.first = std::clamp(first, piece.first, piece.last) - begin;
    piece.last = std::clamp(last, begin, piece.last) - begin;
  }
  std::erase_if(pieces_,
                [](const Piece& piece) { return !piece.is_whole && piece.first == piece.last; });
}

std::size_t ProcessShare::read(std::span<unsigned char> buffer) {
  std::size_t done = 0;
  while (done < buffer.size() && next_ < pieces_.size()) {
    Piece& piece = pieces_[next_];
    if (!piece.file) {
      piece.file = std::make_unique<InputFile>(piece.name);
      if (!piece.is_whole) piece.file->restrict_to(piece.first, piece.last);
    }
    const std::size_t got = piece.file->read(buffer.subspan(done));
    done += got;
    piece.bytes_read += got;
    if (done < buffer.size()) {
      require_whole_elements(piece);
      piece.file.reset();
      ++next_;
    }
  }
  return done;
}

/// Checks a file that ended: the next file must not complete its last element.
void ProcessShare::require_whole_elements(const Piece& piece) const {
  if (const std::uint64_t rest = piece.bytes_read % width_; rest != 0)
    throw_no_multiple(in_quotes(piece.name) + " ended after " + std::to_string(rest) +
                          " bytes of its last number",
                      width_);
}

void ReadingSummary::print() const {
  std::printf("%llu bytes of %zu %s in %.3f s: %.2f GB/s\n", static_cast<unsigned long long>(bytes),
              files, files == 1 ? "file" : "files", seconds, rate());
  std::printf("  %d %s, %s\n", processes, processes == 1 ? "process" : "processes", how.c_str());
}

Json ReadingSummary::to_json() const {
  return {{"files", files},
          {"processes", processes},
          {"bytes", bytes},
          {"seconds", seconds},
          {"gigabytes_per_s", rate()}};
}

Reading::Reading(const ReadingCommand& command, std::size_t width, Processes& processes)
    : command_{command},
      processes_{processes},
      share_{command.files, width, processes},
      options_{overlap_options_for(command.streaming, own_device(command, processes), share_.size(),
                                   width)} {
  require_same_files();
}

/// Processes on several machines may see different files under one name. Their parts would then not
/// match.
void Reading::require_same_files() const {
  const std::vector<std::uint64_t> sizes = gather(share_.size_of_all());
  for (std::size_t i = 1; i < sizes.size(); ++i)
    if (sizes[i] != sizes[0])
      throw Failure("process 0 finds " + std::to_string(sizes[0]) +
                    " bytes in the files, and process " + std::to_string(i) + " finds " +
                    std::to_string(sizes[i]) +
                    "; name the same files to all processes, in a folder that all of them see");
}

ReadingSummary Reading::summary(std::uint64_t bytes) const {
  const std::string each = processes_.size() > 1 ? " in each process" : "";
  return {.files = command_.files.size(),
          .processes = processes_.size(),
          .bytes = bytes,
          .seconds = std::chrono::duration<double>(clock::now() - begin_).count(),
          .how = RUNNEL_BACKEND + std::string{", chunks of "} + to_text(options_.chunk) +
                 ", at most " + std::to_string(options_.in_flight) + " in flight" + each};
}

}  // namespace tool
