// SPDX-License-Identifier: Apache-2.0
/// What each operation does while streams are being captured, as one table, like the routes of
/// copies and fills (copy/route.hpp). An operation that the runtime itself turns into a node needs
/// no look-up.
#pragma once

#include <runnel/config.hpp>

#include <array>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Named by the operation, and grouped by which stream is being captured.
enum class CaptureCase : unsigned char {
  // The operation's stream is being captured.
  query_stream,
  wait_for_stream,
  read_element,
  submit_completion,
  use_value,
  prefetch,
  begin_capture,
  // A graph that was last launched on another stream, if the runtime does not order the launches.
  launch_unordered_graph,
  launch_graph,
  record_event,
  wait_for_event,
  launch_host_function,
  keep_object,
  allocate_memory,
  free_memory,
  // The event was recorded in a capture.
  ask_captured_event,
  // A blocking stream is being captured, and the operation's stream is the default stream.
  default_stream_work,
  // A stream of the device is being captured.
  wait_for_device,
  // The calling thread is capturing a stream.
  overlap,
  // The library calls the runtime for itself: internal_call().
  internal_call,
};
inline constexpr std::size_t capture_cases =
    static_cast<std::size_t>(CaptureCase::internal_call) + 1;

enum class InACapture : unsigned char {
  refused,     ///< it throws before it calls the runtime: the call would break the capture, or is
               ///< not repeatable
  node,        ///< it becomes a node of the graph
  runs_beside  ///< it runs now, and the capture continues
};

struct CaptureRule {
  CaptureCase what;
  InACapture happens;
  const char* reason = "";  // why it is refused
};

inline constexpr const char* nothing_runs =
    "the stream is being captured: nothing runs before the graph is launched";

inline constexpr std::array<CaptureRule, capture_cases> capture_rules{{
    {CaptureCase::query_stream, InACapture::refused, nothing_runs},
    {CaptureCase::wait_for_stream, InACapture::refused, nothing_runs},
    {CaptureCase::read_element, InACapture::refused, nothing_runs},
    {CaptureCase::submit_completion, InACapture::refused,
     "the stream is being captured: nothing completes before the graph is launched"},
    // A graph would wait for the same value at each launch, and runtimes differ in what they
    // capture.
    {CaptureCase::use_value, InACapture::refused, "the stream is being captured"},
    {CaptureCase::prefetch, InACapture::refused, "a graph cannot hold a prefetch"},
    {CaptureCase::begin_capture, InACapture::refused, "the stream is being captured already"},
    {CaptureCase::launch_unordered_graph, InACapture::refused,
     "the graph was launched on another stream, which the capture cannot wait for"},
    {CaptureCase::launch_graph, InACapture::node},
    {CaptureCase::record_event, InACapture::node},
    {CaptureCase::wait_for_event, InACapture::node},
    {CaptureCase::launch_host_function, InACapture::node},
    {CaptureCase::keep_object, InACapture::node},
    {CaptureCase::allocate_memory, InACapture::node},
    {CaptureCase::free_memory, InACapture::node},
    {CaptureCase::ask_captured_event, InACapture::refused,
     "the event was recorded in a capture: it marks a place in a graph"},
    {CaptureCase::default_stream_work, InACapture::refused,
     "a blocking stream is being captured: until that ends, the default stream takes no work and "
     "cannot be waited for"},
    {CaptureCase::wait_for_device, InACapture::refused,
     "a stream of the device is being captured, and the wait would break the capture"},
    {CaptureCase::overlap, InACapture::refused,
     "the calling thread is capturing a stream, and its waits would break the capture"},
    {CaptureCase::internal_call, InACapture::runs_beside},
}};

[[nodiscard]] constexpr const CaptureRule& capture_rule(CaptureCase what) noexcept {
  return capture_rules[static_cast<std::size_t>(what)];
}

}  // namespace runnel::inline RUNNEL_ABI::detail
