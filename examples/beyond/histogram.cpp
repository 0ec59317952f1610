// SPDX-License-Identifier: Apache-2.0
// How often each byte occurs in a file, which may be larger than the memory of all devices: mpirun
// -n 4 example_histogram FILE
//
// Each process streams its own part of the file through its device; one all_reduce() adds the
// counts.
#include <array>
#include <cstdint>
#include <runnel/mpi.hpp>
#include <runnel/runnel.hpp>
#include <vector>

#include "part_of_file.hpp"

using namespace runnel;

namespace {

constexpr std::size_t chunk = std::size_t{4} << 20;

/// Counts on the host backend's device. On a GPU a kernel would do this.
void count(StreamRef stream, DeviceSpan<const unsigned char> bytes,
           DeviceSpan<std::uint64_t> counts) {
  stream.launch_host_func([=] {
    std::array<std::uint64_t, 256> own{};
    for (std::size_t i = 0; i < bytes.size(); ++i) ++own[bytes.data()[i]];
    for (std::size_t i = 0; i < own.size(); ++i) counts.data()[i] += own[i];
  });
}

void histogram(const char* path) {
  const Communicator all{mpi::world(), {.name = "histogram"}};
  const beyond::Part part = beyond::part_of(std::filesystem::file_size(path), all);
  std::ifstream file = beyond::open_at(path, part.first);
  std::size_t left = part.last - part.first;
  const auto read = [&](std::span<unsigned char> to) {
    file.read(reinterpret_cast<char*>(to.data()),
              static_cast<std::streamsize>(std::min(to.size(), left)));
    const auto found = static_cast<std::size_t>(file.gcount());
    left -= found;
    return found;
  };

  const Stream stream;
  const OverlapOptions options{.chunk = chunk, .in_flight = 4};
  // of each chunk that may be computed at the same time
  DeviceBuffer<std::uint64_t> counts{256 * options.in_flight, stream};
  fill(stream, counts, 0U);
  stream.synchronize();
  overlap(
      from_source<unsigned char>(read), no_output, options,
      [&](StreamRef in_order, DeviceSpan<const unsigned char> bytes, const OverlapChunk& which) {
        count(in_order, bytes, counts.span().subspan(256 * which.buffer, 256));
      });

  all.all_reduce(stream, counts);  // in the stream, after the counting; returns at once
  std::vector<std::uint64_t> sums(counts.size());
  copy(stream, sums, counts);
  stream.synchronize();
  if (all.rank() != 0) return;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::uint64_t sum = 0;
    for (std::size_t i = byte; i < sums.size(); i += 256) sum += sums[i];
    if (sum > 0) std::printf("%zu %llu\n", byte, static_cast<unsigned long long>(sum));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return beyond::run(argc, argv, "usage: mpirun -n N example_histogram FILE", 1,
                     [&] { histogram(argv[1]); });
}
