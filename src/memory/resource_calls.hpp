// SPDX-License-Identifier: Apache-2.0
/// The calls of a program's resource (stream_ordered_resource.hpp). The stream's device is current
/// there, no lock of the library is held, and what the resource does with the library is a part of
/// that operation.
#pragma once

#include "stream/slots.hpp"

#include <runnel/stream_ordered_resource.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether the calling thread is in such a call. The resource may hold a lock then, so that no
/// resource must be called.
[[nodiscard]] bool is_in_resource() noexcept;

/// Allocates. @throws what the resource throws, and errc::out_of_memory if it gives null
[[nodiscard]] void* take_from(AnyResource& resource, StreamRef stream, std::size_t bytes,
                              const char* operation);
/// Gives a block back in the order of the stream. What the resource throws ends here: there is
/// nobody to tell.
void give_back_to(AnyResource& resource, StreamRef stream, void* pointer,
                  std::size_t bytes) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
