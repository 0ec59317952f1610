// SPDX-License-Identifier: Apache-2.0
/// The checker's input, from src/observe/race_checker.cpp. Each function is called after the
/// runtime has accepted the operation. Requires: detail::is_checking(). No function throws: without
/// memory the checker forgets all earlier uses.
#pragma once

#include "base/operation.hpp"
#include "checker/conflict.hpp"
#include "checker/order.hpp"

#include <runnel/detail/checking.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {

using detail::MemoryAccess;

using Rows = detail::MemoryRows;
using detail::MemoryUse;

/// The stream's next operation uses memory. Requires: `operation` is a literal, as in "copy".
void uses_memory(const StreamInfo& stream, const char* operation,
                 std::span<const MemoryUse> uses) noexcept;

/// The stream has received operations without an order among them. No two of them may use the same
/// bytes, unless both only read.
void uses_memory_at_once(const StreamInfo& stream, const char* operation,
                         std::vector<Access> accesses) noexcept;

/// The stream's next operation uses no memory that the checker knows of. It still takes part in the
/// order of default and blocking streams.
void submits_work(const StreamInfo& stream) noexcept;
/// The same for a host function, whose accesses are declared while it runs. `operation`: the number
/// of its launch.
void submits_function(const StreamInfo& stream, std::uint64_t operation) noexcept;
void ends_function(std::uint64_t operation) noexcept;
void records_event(const StreamInfo& stream, native::event event) noexcept;
/// Other code may have recorded the event.
void adopts_event(native::event event) noexcept;
void waits_for_event(const StreamInfo& stream, native::event event) noexcept;
void waits_for_stream(const StreamInfo& waiting, const StreamInfo& awaited) noexcept;
/// The stream's owner releases it: another wrapper of the handle is the same stream.
void releases_stream(std::uint64_t id, native::stream handle) noexcept;
void ends_stream(std::uint64_t id) noexcept;

void host_waited_for_stream(const StreamInfo& stream) noexcept;
void host_waited_for_event(native::event event) noexcept;
void host_waited_for_device(int device) noexcept;

/// Memory that any stream may use at once.
void allocates(const void* pointer, std::size_t bytes) noexcept;
/// Memory that exists from this point of the stream on.
void allocates_in_order(const StreamInfo& stream, const void* pointer, std::size_t bytes) noexcept;
/// Frees memory after the work of `owner` and `others`.
void frees_in_order(const StreamInfo& owner, std::span<const StreamInfo> others,
                    const void* pointer, std::size_t bytes) noexcept;
/// Frees memory whose users the library has waited for, or will wait for.
void frees(const void* pointer, std::size_t bytes) noexcept;
/// Pins memory that other code has allocated.
void pins(const void* pointer, std::size_t bytes) noexcept;
/// Unpins memory. Reports streams that may still use it.
void unpins(const void* pointer, std::size_t bytes) noexcept;

/// The number of the launch of the host function that the calling thread runs; 0: it runs none, or
/// one of a graph, or the launch was not observed.
extern thread_local constinit std::uint64_t host_function;

}  // namespace runnel::inline RUNNEL_ABI::checker
