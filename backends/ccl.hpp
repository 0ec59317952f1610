// SPDX-License-Identifier: Apache-2.0
/// The functions that a library of collective operations on devices must provide. As in
/// backend.hpp, each function wraps one call, returns a status and accesses no state of
/// runnel. Only the component comm uses them.
#pragma once

#include <runnel/detail/exchange.hpp>
#include <runnel/error.hpp>
#include <runnel/native.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::ccl {

using status = int;  ///< the library's own error number
inline constexpr status ok = 0;
using Handle = void*;  ///< a communicator

/// Identifies a new communicator to all its ranks.
struct UniqueId {
  char bytes[128];
};
using detail::Element;

status make_unique_id(UniqueId& id) noexcept;
/// Creates a communicator on the current device. Waits for the other ranks.
status init_rank(Handle& made, int size, const UniqueId& id, int rank) noexcept;
/// Creates a communicator for each of the devices.
status init_all(Handle* made, int count, const int* devices) noexcept;
status destroy(Handle communicator) noexcept;
/// Ends the operations of the communicator, and destroys it.
status abort(Handle communicator) noexcept;
/// The error of an operation that is running or complete, or ok.
status async_error(Handle communicator, status& error) noexcept;

status group_start() noexcept;
status group_end() noexcept;
/// @{ Counts are in elements; a complex number is two. For reduce_scatter it is the count of the
/// output, for all_gather that of the input.
status all_reduce(const void* in, void* out, std::size_t count, Element type, Reduce how,
                  Handle communicator, native::stream stream) noexcept;
status reduce(const void* in, void* out, std::size_t count, Element type, Reduce how, int root,
              Handle communicator, native::stream stream) noexcept;
status reduce_scatter(const void* in, void* out, std::size_t count, Element type, Reduce how,
                      Handle communicator, native::stream stream) noexcept;
status broadcast(const void* in, void* out, std::size_t count, Element type, int root,
                 Handle communicator, native::stream stream) noexcept;
status all_gather(const void* in, void* out, std::size_t count, Element type, Handle communicator,
                  native::stream stream) noexcept;
status send(const void* in, std::size_t count, Element type, int peer, Handle communicator,
            native::stream stream) noexcept;
status receive(void* out, std::size_t count, Element type, int peer, Handle communicator,
               native::stream stream) noexcept;
///@}

errc classify(status s) noexcept;
/// Whether the status means that work is in progress.
bool is_in_progress(status s) noexcept;
const char* error_text(status s) noexcept;
/// The library's text about the last error of the process; "" if there is none.
const char* last_error() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::ccl
