// SPDX-License-Identifier: Apache-2.0
/// Why operations are refused while streams are being captured: the call would break the capture,
/// or a graph cannot repeat it. Each text completes "could not do it: ". All other operations
/// become nodes, or run beside the capture.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail::refusal {

// The operation's stream is being captured.
inline constexpr const char* nothing_runs =
    "the stream is being captured: nothing runs before the graph is launched";
inline constexpr const char* nothing_completes =
    "the stream is being captured: nothing completes before the graph is launched";
// A graph would wait for the same value at each launch, and runtimes differ in what they capture.
inline constexpr const char* value = "the stream is being captured";
inline constexpr const char* prefetch = "a graph cannot hold a prefetch";
inline constexpr const char* second_capture = "the stream is being captured already";
// If the runtime does not order the launches of a graph.
inline constexpr const char* unordered_graph =
    "the graph was launched on another stream, which the capture cannot wait for";
inline constexpr const char* captured_event =
    "the event was recorded in a capture: it marks a place in a graph";
// The operation's stream is the default stream.
inline constexpr const char* default_stream =
    "a blocking stream is being captured: until that ends, the default stream takes no work and "
    "cannot be waited for";
inline constexpr const char* device_wait =
    "a stream of the device is being captured, and the wait would break the capture";
inline constexpr const char* overlap =
    "the calling thread is capturing a stream, and its waits would break the capture";

}  // namespace runnel::inline RUNNEL_ABI::detail::refusal
