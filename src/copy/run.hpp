// SPDX-License-Identifier: Apache-2.0
/// Going a route: everything here enqueues work. Requires, throughout: the request is valid, and the stream's device is current.
#pragma once

#include "copy/facts.hpp"
#include "copy/request.hpp"
#include "copy/route.hpp"

#include <runnel/config.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// Returns what was done. Where the route turns out to be closed, nothing is returned, no memory of the caller has changed, and `facts` say
/// why: choose_route() chooses another one then.
[[nodiscard]] std::optional<CopyResult> run(Route route, const CopyRequest& request, Facts& facts);
void run(Route route, const FillRequest& request, Facts& facts);

/// Chooses routes and goes them until the copy is enqueued.
CopyResult enqueue_copy(const CopyRequest& request, Facts& facts);
/// The same for callers who have not entered yet: validates, and makes the stream's device current.
CopyResult copy_request(StreamRef stream, const CopyRequest& request, const char* operation);

/// Before the copy engine is sent to device memory: the stream's device must be able to reach it.
void reach_devices(const CopyRequest& request, Facts& facts);

}  // namespace runnel::inline RUNNEL_ABI::detail
