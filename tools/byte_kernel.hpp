// SPDX-License-Identifier: Apache-2.0
/// The kernels of the command. On a GPU many threads run a kernel together; on the host backend one
/// thread does. The host backend has its own kernels that map and count
/// (launch_byte_kernel_host.cpp), because the fastest algorithm for one thread is different.
#pragma once

#include "byte_map.hpp"

#include <cstddef>
#include <cstdint>

#if defined __CUDACC__ || defined __HIPCC__
#define TOOL_KERNEL __host__ __device__
#else
#define TOOL_KERNEL
#endif

namespace tool {

using ByteCount = unsigned long long;

/// The memory that the threads of a block share. Each byte has several counters, because with one
/// counter a sequence of equal bytes would serialize the additions.
struct Scratch {
  static constexpr unsigned lanes = 4;
  unsigned counts[lanes * 256];
  unsigned char map[256];
};

/// The kernel of `runnel overlap` on a GPU. It maps `size` bytes and adds the number of each input
/// byte to the 256 `counts`. `team` identifies the calling thread.
template <class Team>
TOOL_KERNEL void map_and_count(Team team, Scratch& scratch, const unsigned char* in,
                               unsigned char* out, std::size_t size, const ByteMap& map,
                               ByteCount* counts) {
  for (unsigned i = team.rank_in_block(); i < Scratch::lanes * 256; i += team.block_size())
    scratch.counts[i] = 0;
  for (unsigned i = team.rank_in_block(); i < 256; i += team.block_size())
    scratch.map[i] = map.to[i];
  team.synchronize_block();

  for (std::size_t i = team.rank(); i < size; i += team.size()) {
    const unsigned char byte = in[i];
    team.add(scratch.counts[i % Scratch::lanes * 256 + byte], 1U);
    out[i] = scratch.map[byte];
  }
  team.synchronize_block();
  for (unsigned i = team.rank_in_block(); i < Scratch::lanes * 256; i += team.block_size())
    team.add(counts[i % 256], ByteCount{scratch.counts[i]});
}

/// The kernel of `runnel bench`. It computes 2 * x + 1 of each byte, eight bytes at a time, and
/// repeats that `rounds` times on the result. Requires: `in` and `out` are aligned to 8 bytes.
template <class Team>
TOOL_KERNEL void double_and_add_one(Team team, const unsigned char* in, unsigned char* out,
                                    std::size_t size, unsigned rounds) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(in);
  for (std::size_t i = team.rank(); i < size / 8; i += team.size()) {
    std::uint64_t word = words[i];
    for (unsigned round = 0; round < rounds; ++round)
      word = (word & 0x7f7f7f7f7f7f7f7fU) << 1 | 0x0101010101010101U;
    reinterpret_cast<std::uint64_t*>(out)[i] = word;
  }
  for (std::size_t i = size / 8 * 8 + team.rank(); i < size; i += team.size()) {
    unsigned char byte = in[i];
    for (unsigned round = 0; round < rounds; ++round)
      byte = static_cast<unsigned char>(2 * byte + 1);
    out[i] = byte;
  }
}

}  // namespace tool
