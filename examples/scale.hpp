// SPDX-License-Identifier: Apache-2.0
// The computation of strategy_a.cpp, strategy_b.cpp and overlap.cpp, and the check of their
// results.
#pragma once

#include <runnel/runnel.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

/// Enqueues out = 2 * in + 1: a kernel on CUDA (scale.cu), a host function on the host backend
/// (scale_host.cpp). Both declare to the checker what they use, without which RUNNEL_CHECK=1 would
/// not see a missing wait for the result.
void scale(runnel::StreamRef stream, runnel::DeviceSpan<const float> in,
           runnel::DeviceSpan<float> out);

/// Fills in numbers, of which neighbouring ones differ.
inline void fill_in(std::span<float> numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 1'000'003);
}

/// Checks the result and prints a hash of it. Returns the exit status of the program.
inline int report(std::span<const float> result) {
  std::uint64_t hash = 14695981039346656037U;
  bool good = true;
  for (std::size_t i = 0; i < result.size(); ++i) {
    good = good && result[i] == 2 * static_cast<float>(i % 1'000'003) + 1;
    hash = (hash ^ static_cast<std::uint64_t>(result[i])) * 1099511628211U;
  }
  std::printf("%s: %zu numbers, %016llx\n", good ? "right" : "WRONG", result.size(),
              static_cast<unsigned long long>(hash));
  return good ? 0 : 1;
}
