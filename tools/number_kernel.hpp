// SPDX-License-Identifier: Apache-2.0
/// The kernel of `runnel sum`. On the host backend it runs as a team of one thread.
#pragma once

#include "byte_kernel.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tool {

/// The result for integers. The sum is 2^32 * high + low, which is exact for up to 2^31 numbers.
struct IntegerSum {
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t least = INT64_MAX;
  std::int64_t most = INT64_MIN;

  template <class Integer>
  TOOL_KERNEL void add(Integer number) {
    if constexpr (sizeof number < 8) {
      low += number;
    } else {
      low += number & 0xffffffff;
      high += number >> 32;
    }
    least = number < least ? number : least;
    most = number > most ? number : most;
  }
  TOOL_KERNEL void add(const IntegerSum& other) {
    low += other.low;
    high += other.high;
    least = other.least < least ? other.least : least;
    most = other.most > most ? other.most : most;
  }
};

/// The result for floating-point numbers, which are added as doubles. If there is a NaN, the sum is
/// NaN; `least` and `most` ignore NaNs.
struct FloatSum {
  double sum = 0;
  double least = HUGE_VAL;
  double most = -HUGE_VAL;
  std::uint64_t nans = 0;

  TOOL_KERNEL void add(double number) {
    sum += number;
    least = number < least ? number : least;
    most = number > most ? number : most;
    nans += number != number ? 1 : 0;
  }
  TOOL_KERNEL void add(const FloatSum& other) {
    sum += other.sum;
    least = other.least < least ? other.least : least;
    most = other.most > most ? other.most : most;
    nans += other.nans;
  }
};

template <class Number>
using SumOf = std::conditional_t<std::is_integral_v<Number>, IntegerSum, FloatSum>;

/// Each block adds its share of the numbers and stores the result in its own element of `out`. The
/// order of the additions depends only on the sizes. Requires: `scratch` has an element for each
/// thread of the block, and the number of these threads is a power of two.
template <class Number, class Team>
TOOL_KERNEL void sum_numbers(Team team, SumOf<Number>* scratch, const Number* in, std::size_t size,
                             SumOf<Number>* out) {
  SumOf<Number> own;
  for (std::size_t i = team.rank(); i < size; i += team.size()) own.add(in[i]);
  const unsigned rank = team.rank_in_block();
  scratch[rank] = own;
  for (unsigned half = team.block_size() / 2; half > 0; half /= 2) {
    team.synchronize_block();
    if (rank < half) scratch[rank].add(scratch[rank + half]);
  }
  if (rank == 0) out[team.rank() / team.block_size()] = scratch[0];
}

}  // namespace tool
