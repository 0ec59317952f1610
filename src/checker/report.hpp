// SPDX-License-Identifier: Apache-2.0
/// The texts of the checker's reports.
#pragma once

#include "checker/order.hpp"
#include "checker/ranges.hpp"

#include <runnel/detail/checking.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace runnel::inline RUNNEL_ABI::checker {

/// The error in the order of an earlier use and a later one.
enum class Fault : unsigned char {
  unordered,          ///< two streams, at least one writes
  host_too_early,     ///< the host uses memory before a stream has finished with it
  allocated_later,    ///< memory is used before its allocation in stream order
  freed_too_early,    ///< memory is freed in stream order, before all uses are complete
  used_after_free,    ///< memory was freed, or will be by an earlier operation of a stream
  within_batch,       ///< two operations of one batch, at least one writes
  unpinned_in_flight  ///< memory is unpinned while a stream may use it
};

struct Finding {
  Fault fault;
  Use earlier;
  detail::MemoryAccess earlier_access;
  std::optional<uint32_t> later_stream;  // nothing: the host
  Use later;
  detail::MemoryAccess later_access;
  uintptr_t begin;  // of the bytes that both use
  uintptr_t end;
  std::optional<std::array<size_t, 2>> in_batch{};  // the two operations of the batch
};

/// @throws std::bad_alloc
std::string text_of(const Finding& finding, const Order& order);

}  // namespace runnel::inline RUNNEL_ABI::checker
