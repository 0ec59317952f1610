// SPDX-License-Identifier: Apache-2.0
// Sorts the 64-bit numbers of a file over all processes: mpirun -n 4 example_sample_sort FROM TO
//
// Each process sorts a part. Samples of all parts say which process gets which numbers; a group of
// sends and receives exchanges them.
#include <algorithm>
#include <cstdint>
#include <runnel/mpi.hpp>
#include <runnel/runnel.hpp>
#include <vector>

#include "part_of_file.hpp"

using namespace runnel;
using Number = std::uint64_t;

namespace {

constexpr std::size_t samples = 64;  // of each process

/// Sorts on the host backend's device. On a GPU a library would do this.
void sort(StreamRef stream, DeviceSpan<Number> numbers) {
  stream.launch_host_func([=] { std::sort(numbers.data(), numbers.data() + numbers.size()); });
}

template <class T>
std::vector<T> on_host(StreamRef stream, const DeviceBuffer<T>& values) {
  std::vector<T> found(values.size());
  copy(stream, found, values);
  stream.synchronize();
  return found;
}

template <class T>
DeviceBuffer<T> on_device(StreamRef stream, const std::vector<T>& values) {
  DeviceBuffer<T> made{values.size(), stream};
  copy(stream, made, values);
  stream.synchronize();
  return made;
}

/// Where the numbers for each process begin in the sorted ones; one more entry is the end.
std::vector<Number> bounds(const Communicator& all, StreamRef stream,
                           const std::vector<Number>& sorted) {
  std::vector<Number> own(samples, ~Number{0});
  for (std::size_t i = 0; i < samples && !sorted.empty(); ++i)
    own[i] = sorted[i * sorted.size() / samples];
  const auto mine = on_device(stream, own);
  DeviceBuffer<Number> gathered{samples * static_cast<std::size_t>(all.size()), stream};
  all.all_gather(stream, mine, gathered);
  auto from_all = on_host(stream, gathered);
  std::sort(from_all.begin(), from_all.end());
  std::vector<Number> begins{0};
  for (std::size_t i = samples; i < from_all.size(); i += samples)
    begins.push_back(static_cast<Number>(
        std::lower_bound(sorted.begin(), sorted.end(), from_all[i]) - sorted.begin()));
  begins.push_back(sorted.size());
  return begins;
}

/// Sends each process its numbers; returns what this process gets.
DeviceBuffer<Number> exchange(const Communicator& all, StreamRef stream,
                              const DeviceBuffer<Number>& sorted,
                              const std::vector<Number>& begins) {
  const auto size = static_cast<std::size_t>(all.size()),
             self = static_cast<std::size_t>(all.rank());
  std::vector<Number> sizes(size);
  for (std::size_t to = 0; to < size; ++to) sizes[to] = begins[to + 1] - begins[to];
  const auto outgoing = on_device(stream, sizes);
  DeviceBuffer<Number> incoming{size, stream};
  all.all_to_all(stream, outgoing, incoming);
  const auto counts = on_host(stream, incoming);
  Number total = 0;
  for (const Number count : counts) total += count;
  DeviceBuffer<Number> result{total, stream};
  all.group(stream, [&](Communicator::Group& group) {
    Number at = 0;
    for (std::size_t other = 0; other < size; ++other) {
      const auto place = result.span().subspan(at, counts[other]);
      const auto part = sorted.span().subspan(begins[other], sizes[other]);
      at += counts[other];
      if (other == self) {
        copy(stream, place, part);
        continue;
      }
      group.send(part, static_cast<int>(other));
      group.receive(place, static_cast<int>(other));
    }
  });
  return result;
}

/// Each process writes its numbers behind those of the processes before it.
void write(const Communicator& all, StreamRef stream, const DeviceBuffer<Number>& sorted,
           const char* path) {
  const auto mine = on_device(stream, std::vector<Number>{sorted.size()});
  DeviceBuffer<Number> sizes{static_cast<std::size_t>(all.size()), stream};
  all.all_gather(stream, mine, sizes);
  const auto counts = on_host(stream, sizes);
  Number first = 0;
  for (int i = 0; i < all.rank(); ++i) first += counts[static_cast<std::size_t>(i)];
  const auto numbers = on_host(stream, sorted);
  if (all.rank() == 0) std::ofstream{path, std::ios::binary};
  all.barrier(stream);  // the file is there
  stream.synchronize();
  std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
  file.seekp(static_cast<std::streamoff>(first * sizeof(Number)));
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(Number)));
  if (!file.flush()) throw std::runtime_error(std::string{path} + ": cannot be written");
}

void sample_sort(const char* from, const char* to) {
  const Communicator all{mpi::world(), {.name = "sort"}};
  const beyond::Part part = beyond::part_of(std::filesystem::file_size(from) / sizeof(Number), all);
  std::vector<Number> numbers(part.last - part.first);
  beyond::open_at(from, part.first * sizeof(Number))
      .read(reinterpret_cast<char*>(numbers.data()),
            static_cast<std::streamsize>(numbers.size() * sizeof(Number)));
  const Stream stream;
  auto own = on_device(stream, numbers);
  sort(stream, own);
  auto exchanged = exchange(all, stream, own, bounds(all, stream, on_host(stream, own)));
  sort(stream, exchanged);
  write(all, stream, exchanged, to);
}

}  // namespace

int main(int argc, char** argv) {
  return beyond::run(argc, argv, "usage: mpirun -n N example_sample_sort FROM TO", 2,
                     [&] { sample_sort(argv[1], argv[2]); });
}
