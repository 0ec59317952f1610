// SPDX-License-Identifier: Apache-2.0
/// What the commands have in common that compute something of all bytes of files, and write no
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
  /// On the host backend less than for one process alone, because the processes of a machine share
  /// its last cache.
  StreamingOptions streaming{.chunk = host_backend ? "1M" : "16M", .in_flight = 4};
  std::string type;  ///< of `runnel sum`
  bool json = false;
  bool progress = false;
  std::vector<std::string> files;
};

/// What this process reads. The files with a known size count as one, of which each process reads a
/// part. Pipes, and files that report no size, are read by process 0 alone; the other processes do
/// not open pipes, because that could wait for ever.
class OwnPart {
 public:
  /// The elements of the files have `width` bytes. @throws Failure if a file cannot be read, or its
  /// size is no multiple of `width`
  OwnPart(const std::vector<std::string>& names, std::size_t width, const Processes& processes);

  /// Fills the buffer and returns the number of bytes, which is smaller than the buffer only at the
  /// end of the part.
  [[nodiscard]] std::size_t read(std::span<unsigned char> buffer);
  /// The bytes of the part; nothing if there is a file without a known size.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept { return size_; }
  /// The bytes of all files with a known size.
  [[nodiscard]] std::uint64_t size_of_all() const noexcept { return size_of_all_; }

 private:
  struct Piece {
    std::string name;
    std::uint64_t first, last;
    // its size is unknown, so that it is read to its end, whatever `first` and `last` are
    bool is_whole;
    std::unique_ptr<InputFile> file;  // if it is open
  };

  void keep(std::uint64_t first, std::uint64_t last);

  std::vector<Piece> pieces_;
  std::size_t next_ = 0;  // the piece to read from
  std::uint64_t size_of_all_ = 0;
  std::optional<std::uint64_t> size_ = 0;
};

/// What all processes have read, and how.
struct ReadingSummary {
  std::size_t files;
  int processes;
  std::uint64_t bytes;
  double seconds;
  std::string how;  ///< sizes and device, in words

  [[nodiscard]] double rate() const noexcept {
    return seconds > 0 ? static_cast<double>(bytes) / 1e9 / seconds : 0;
  }
  void print() const;
  [[nodiscard]] nlohmann::ordered_json to_json() const;
};

/// One run of such a command, by this process and the others.
class Reading {
 public:
  /// @throws Failure
  Reading(const ReadingCommand& command, std::size_t width, Processes& processes);

  /// Sends this process's part through its device. `enqueue(stream, in, out)` computes `results`
  /// elements of each chunk, which `take(results)` gets on the host, in order.
  template <class Item, class Result, class Enqueue, class Take>
  void run(std::size_t results, Enqueue enqueue, Take take) try {
    runnel::OverlapOptions options = options_;
    options.chunk /= sizeof(Item);
    options.progress = [&](const runnel::OverlapProgress& progress) {
      processes_.report(progress.items * sizeof(Item));
    };
    processes_.show_progress(part_.size() ? std::optional{part_.size_of_all()} : std::nullopt,
                             command_.progress);
    runnel::overlap(runnel::from_source<Item>([&](std::span<Item> items) {
                      return read_bytes(items.data(), items.size_bytes()) / sizeof(Item);
                    }),
                    runnel::per_chunk(runnel::to_sink<Result>(take), results), options,
                    [&](runnel::StreamRef stream, runnel::DeviceSpan<const Item> in,
                        runnel::DeviceSpan<Result> out) { enqueue(stream, in, out); });
    processes_.hide_progress();
  } catch (const runnel::OverlapError& error) {
    throw_cause(error);
  }

  /// What each process has found, in their order.
  template <class T>
  [[nodiscard]] std::vector<T> gather(const T& mine) const {
    return processes_.gather(options_.devices[0], mine);
  }
  [[nodiscard]] ReadingSummary summary(std::uint64_t bytes) const;

 private:
  using clock = std::chrono::steady_clock;

  [[nodiscard]] std::size_t read_bytes(void* to, std::size_t bytes);
  void require_same_files() const;

  clock::time_point begin_ = clock::now();
  const ReadingCommand& command_;
  std::size_t width_;
  Processes& processes_;
  OwnPart part_;
  runnel::OverlapOptions options_;
};

}  // namespace tool
