// SPDX-License-Identifier: Apache-2.0
/// The common part of the commands that compute a result from all bytes of files, and write no
/// files.
#pragma once

#include "failure.hpp"
#include "files.hpp"
#include "processes.hpp"
#include "streaming.hpp"

#include <runnel/overlap.hpp>
#include <runnel/stream.hpp>

#include <nlohmann/json_fwd.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tool {

/// The arguments as typed.
struct ReadingCommand {
  /// The chunks are smaller on the host backend than for a single process, because the processes of
  /// a machine share its last-level cache.
  StreamingOptions streaming{.chunk = host_backend ? "1M" : "16M", .in_flight = 4};
  std::string type;  ///< for `runnel sum`
  bool json = false;
  bool progress = false;
  std::vector<std::string> files;
};

/// The part of the files that this process reads. The files with a known size are treated as one
/// concatenated file, of which each process reads a part. Pipes, and files that report no size, are
/// read by process 0 alone; the other processes do not open pipes, because that could block without
/// a limit.
class ProcessShare {
 public:
  /// The elements of the files have `width` bytes. @throws Failure if a file cannot be read, or its
  /// size is not a multiple of `width`
  ProcessShare(const std::vector<std::string>& names, std::size_t width,
               const Processes& processes);

  /// Fills the buffer and returns the number of bytes, which is smaller than the buffer only at the
  /// end of the part.
  /// @throws Failure if a file without a known size ends within an element
  [[nodiscard]] std::size_t read(std::span<unsigned char> buffer);
  /// The size of the part in bytes; empty if there is a file without a known size.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }
  /// The total size of all files with a known size, in bytes.
  [[nodiscard]] std::uint64_t size_of_all() const noexcept { return size_of_all_; }

 private:
  struct Piece {
    std::string name;
    std::uint64_t first, last;
    // The size is unknown; the file is read to its end, and `first` and `last` are ignored.
    bool is_whole;
    std::unique_ptr<InputFile> file;  // Null unless the file is open.
    std::uint64_t bytes_read = 0;
  };

  void restrict_to(std::uint64_t first, std::uint64_t last);
  void require_whole_elements(const Piece& piece) const;

  std::size_t width_;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;  // The piece to read from.
  std::uint64_t size_of_all_ = 0;
  std::optional<std::uint64_t> size_ = 0;
};

/// A summary of what all processes have read.
struct ReadingSummary {
  std::size_t files;
  int processes;
  std::uint64_t bytes;
  double seconds;
  std::string how;  ///< sizes and device, as text

  [[nodiscard]] double rate() const noexcept {
    return seconds > 0 ? static_cast<double>(bytes) / 1e9 / seconds : 0;
  }
  void print() const;
  [[nodiscard]] nlohmann::ordered_json to_json() const;
};

/// One run of such a command, in this process and the others.
class Reading {
 public:
  /// @throws Failure
  Reading(const ReadingCommand& command, std::size_t width, Processes& processes);

  /// Processes this process's part on its device. `enqueue(stream, in, out)` computes `results`
  /// elements for each chunk, which are passed to `take(results)` on the host, in order.
  template <class Item, class Result, class Enqueue, class Take>
  void run(std::size_t results, Enqueue enqueue, Take take) try {
    runnel::OverlapOptions options = options_;
    options.chunk /= sizeof(Item);
    options.progress = [&](const runnel::OverlapProgress& progress) {
      processes_.report(progress.items * sizeof(Item));
    };
    processes_.show_progress(share_.size() ? std::optional{share_.size_of_all()} : std::nullopt,
                             command_.progress);
    runnel::overlap(
        runnel::from_source<Item>([&](std::span<Item> items) {
          return share_.read({reinterpret_cast<unsigned char*>(items.data()), items.size_bytes()}) /
                 sizeof(Item);
        }),
        runnel::per_chunk(runnel::to_sink<Result>(take), results), options,
        [&](runnel::StreamRef stream, runnel::DeviceSpan<const Item> in,
            runnel::DeviceSpan<Result> out) { enqueue(stream, in, out); });
    processes_.hide_progress();
  } catch (const runnel::OverlapError& error) {
    throw_cause(error);
  }

  /// The `mine` of each process, in the order of their ranks.
  template <class T>
  [[nodiscard]] std::vector<T> gather(const T& mine) const {
    return processes_.gather(options_.devices[0], mine);
  }
  [[nodiscard]] ReadingSummary summary(std::uint64_t bytes) const;

 private:
  using clock = std::chrono::steady_clock;

  void require_same_files() const;

  clock::time_point begin_ = clock::now();
  const ReadingCommand& command_;
  Processes& processes_;
  ProcessShare share_;
  runnel::OverlapOptions options_;
};

}  // namespace tool
