// SPDX-License-Identifier: Apache-2.0
/// The kernel of `runnel overlap`: maps each byte and counts how often each came. One text for every backend: on a GPU many threads
/// run it together, on the host backend one.
#pragma once

#include "byte_map.hpp"

#include <cstddef>

#if defined __CUDACC__ || defined __HIPCC__
#define TOOL_KERNEL __host__ __device__
#else
#define TOOL_KERNEL
#endif

namespace tool {

using ByteCount = unsigned long long;

/// What the threads of one block share. Several counters for each byte, since a run of equal bytes would make every addition wait for
/// the one before, on a CPU as on a GPU.
struct Scratch {
  static constexpr unsigned lanes = 4;
  unsigned counts[lanes * 256];
  unsigned char map[256];
};

/// Maps `size` bytes in place and adds to the 256 `counts` how often each came in. `Team` says which thread this is.
template <class Team>
TOOL_KERNEL void map_and_count(Team team, Scratch& scratch, unsigned char* bytes, std::size_t size, const ByteMap& map, ByteCount* counts) {
  for (unsigned i = team.rank_in_block(); i < Scratch::lanes * 256; i += team.block_size()) scratch.counts[i] = 0;
  for (unsigned i = team.rank_in_block(); i < 256; i += team.block_size()) scratch.map[i] = map.to[i];
  team.synchronize_block();

  for (std::size_t i = team.rank(); i < size; i += team.size()) {
    const unsigned char byte = bytes[i];
    team.add(scratch.counts[i % Scratch::lanes * 256 + byte], 1U);
    bytes[i] = scratch.map[byte];
  }
  team.synchronize_block();

  for (unsigned i = team.rank_in_block(); i < Scratch::lanes * 256; i += team.block_size())
    team.add(counts[i % 256], ByteCount{scratch.counts[i]});
}

}  // namespace tool
