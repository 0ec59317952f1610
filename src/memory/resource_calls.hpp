// SPDX-License-Identifier: Apache-2.0
/// Calls the program's resources (stream_ordered_resource.hpp). During a call the stream's device
/// is current, no lock of the library is held, and operations that the resource calls emit no
/// events of their own.
#pragma once

#include "slot/slots.hpp"

#include <runnel/stream_ordered_resource.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether the calling thread is in a call of a resource. The resource may hold a lock then, so no
/// resource must be called.
bool is_in_resource() noexcept;

/// Allocates from the resource. @throws what the resource throws, and errc::out_of_memory if it
/// returns null
[[nodiscard]] void* allocate_from_resource(AnyResource& resource, StreamRef stream, size_t bytes,
                                           const char* operation);
/// Deallocates the block in stream order. Returns false if the resource has thrown: the callers are
/// destructors.
bool deallocate_to_resource(AnyResource& resource, StreamRef stream, void* pointer,
                            size_t bytes) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
