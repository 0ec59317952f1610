// SPDX-License-Identifier: Apache-2.0
// The kernels of the host backend, which are host functions.
#include "launch_byte_kernel.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

namespace tool {

namespace {

/// The bytes that every processor can map with one instruction. The compiler's vector extension is
/// used, because g++ at -O2 does not vectorize a loop over several ranges.
using Bytes [[gnu::vector_size(16)]] = unsigned char;

[[nodiscard]] Bytes all(unsigned char byte) { return Bytes{} + byte; }

/// Maps bytes. The number of ranges is a compile-time constant, so that the ranges stay in
/// registers.
template <int ranges>
void map_bytes(const unsigned char* in, unsigned char* out, std::size_t size, const ByteMap& map) {
  const Bytes inverted = all(map.inverted ? 0xff : 0);
  Bytes first[ranges + 1], count[ranges + 1], shift[ranges + 1];
  for (int i = 0; i < ranges; ++i) {
    first[i] = all(map.shifted[i].first);
    count[i] = all(map.shifted[i].count);
    shift[i] = all(map.shifted[i].shift);
  }
  std::size_t at = 0;
  for (; at + sizeof(Bytes) <= size; at += sizeof(Bytes)) {
    Bytes bytes;
    std::memcpy(&bytes, in + at, sizeof bytes);
    Bytes result = bytes ^ inverted;
    for (int i = 0; i < ranges; ++i)
      result += reinterpret_cast<Bytes>(bytes - first[i] < count[i]) & shift[i];
    std::memcpy(out + at, &result, sizeof result);
  }
  for (; at < size; ++at) out[at] = map.to[in[at]];
}

void map_bytes(const unsigned char* in, unsigned char* out, std::size_t size, const ByteMap& map) {
  using Map = void(const unsigned char*, unsigned char*, std::size_t, const ByteMap&);
  static constexpr Map* by_ranges[ByteMap::max_ranges + 1] = {
      map_bytes<0>, map_bytes<1>, map_bytes<2>, map_bytes<3>, map_bytes<4>};
  by_ranges[map.ranges](in, out, size, map);
}

/// Counts pairs of bytes. This needs half as many additions, and an addition seldom depends on the
/// previous one. The counters take 256 KiB, which fit into the processor's second-level cache.
/// Not on the stack, which may be as small for the runtime's threads (ulimit -s).
class PairCounts {
 public:
  /// Requires: the total number of bytes is below 2^32.
  void add(const unsigned char* in, std::size_t size) {
    std::size_t at = 0;
    for (; at + 8 <= size; at += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, in + at, sizeof eight);
      ++pairs_[eight & 0xffff];
      ++pairs_[eight >> 16 & 0xffff];
      ++pairs_[eight >> 32 & 0xffff];
      ++pairs_[eight >> 48];
    }
    for (; at < size; ++at) ++single_[in[at]];
  }
  /// Adds the number of each byte to the 256 `counts`.
  void add_to(ByteCount* counts) const {
    std::uint32_t low[256] = {};  // The lower bytes of the pairs.
    for (std::size_t high = 0; high < 256; ++high) {
      const std::uint32_t* const row = pairs_ + 256 * high;
      std::uint32_t sum = 0;
      for (std::size_t byte = 0; byte < 256; ++byte) {
        sum += row[byte];
        low[byte] += row[byte];
      }
      counts[high] += sum;
    }
    for (std::size_t byte = 0; byte < 256; ++byte)
      counts[byte] += ByteCount{low[byte]} + single_[byte];
  }

 private:
  std::uint32_t pairs_[256 * 256] = {};
  std::uint32_t single_[256] = {};
};

void map_and_count(const unsigned char* in, unsigned char* out, std::size_t size,
                   const ByteMap& map, ByteCount* counts) {
  // Small enough that it is still in a cache when it is counted.
  constexpr std::size_t part = std::size_t{64} << 10;
  const auto counted = std::make_unique<PairCounts>();
  for (std::size_t at = 0; at < size; at += part) {
    const std::size_t bytes = std::min(part, size - at);
    map_bytes(in + at, out + at, bytes, map);
    counted->add(in + at, bytes);
  }
  counted->add_to(counts);
}

struct OneThread {
  static std::size_t rank() { return 0; }
  static std::size_t size() { return 1; }
};
}  // namespace

const char* why_no_byte_kernel() noexcept { return nullptr; }

void launch_map_and_count(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                          runnel::DeviceSpan<unsigned char> out, const ByteMap& map,
                          runnel::DeviceSpan<ByteCount> counts) {
  stream.launch_host_func(
      [=] { map_and_count(in.data(), out.data(), in.size(), map, counts.data()); });
}

void launch_double_and_add_one(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                               runnel::DeviceSpan<unsigned char> out, unsigned rounds) {
  stream.launch_host_func(
      [=] { double_and_add_one(OneThread{}, in.data(), out.data(), in.size(), rounds); });
}

}  // namespace tool
