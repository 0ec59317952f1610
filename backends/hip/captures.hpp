// SPDX-License-Identifier: Apache-2.0
/// What captures need on AMD's runtime beyond a single call, according to its published sources of
/// 5.2 to 6.2.
#pragma once

#include <hip/hip_runtime_api.h>
#include <runnel/config.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>

namespace runnel::inline RUNNEL_ABI::rt {

/// The capture that a stream takes part in.
struct Captured {
  hipGraph_t graph = nullptr;  // null: none, or an invalidated one
  const hipGraphNode_t* before = nullptr;
  std::size_t count = 0;  // the number of nodes that the stream's next node depends on
};
inline hipError_t hip_find_capture(hipStream_t stream, Captured& found) noexcept {
  // The null stream is never captured. 5.2 returns "unknown error" for this query.
  if (stream == nullptr) return hipSuccess;
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  unsigned long long number = 0;
  const hipError_t e = hipStreamGetCaptureInfo_v2(stream, &capture, &number, &found.graph,
                                                  &found.before, &found.count);
  if (e != hipSuccess || capture != hipStreamCaptureStatusActive) found = {};
  return e;
}

/// Makes the graph, its copies and its launches own the object together. Destroys it after an
/// error.
inline hipError_t hip_graph_keep(hipGraph_t graph, void* object, void (*destroy)(void*)) noexcept {
#if HIP_VERSION >= 50300000
  hipUserObject_t owner = nullptr;
  hipError_t e = hipUserObjectCreate(&owner, object, destroy, 1, hipUserObjectNoDestructorSync);
  if (e != hipSuccess) return destroy(object), e;
  e = hipGraphRetainUserObject(graph, owner, 1, hipGraphUserObjectMove);
  if (e != hipSuccess) static_cast<void>(hipUserObjectRelease(owner, 1));
  return e;
#else
  static_cast<void>(graph);
  return destroy(object), hipErrorNotSupported;
#endif
}

/// Makes the stream wait for the last work of all other streams of its capture. `joined`: whether
/// there was unjoined work.
inline hipError_t join_all(hipStream_t stream, const Captured& capture, bool& joined) noexcept {
  std::size_t count = 0;
  hipError_t e = hipGraphGetNodes(capture.graph, nullptr, &count);
  if (e != hipSuccess || count == 0) return e;
  // Small captures can be ended without an allocation. After a failure the streams would stay
  // captured, and memory that they would free would leak.
  std::array<hipGraphNode_t, 256> few;
  const std::unique_ptr<hipGraphNode_t[]> many{
      count > few.size() ? new (std::nothrow) hipGraphNode_t[count] : nullptr};
  hipGraphNode_t* const nodes = count > few.size() ? many.get() : few.data();
  if (nodes == nullptr) return hipErrorOutOfMemory;
  e = hipGraphGetNodes(capture.graph, nodes, &count);
  const hipGraphNode_t* const before_end = capture.before + capture.count;
  const auto is_joined = [&](hipGraphNode_t node) {
    std::size_t later = 0;
    if (e == hipSuccess) e = hipGraphNodeGetDependentNodes(node, nullptr, &later);
    return e != hipSuccess || later > 0 ||
           std::find(capture.before, before_end, node) != before_end;
  };
  const auto open =
      static_cast<std::size_t>(std::remove_if(nodes, nodes + count, is_joined) - nodes);
  if (e != hipSuccess || open == 0) return e;
  e = hipStreamUpdateCaptureDependencies(stream, nodes, open, hipStreamAddCaptureDependencies);
  joined = e == hipSuccess;
  return e;
}

/// Replaces an invalidated capture, which cannot be ended, by an empty one, and ends that.
inline hipError_t leave_broken_capture(hipStream_t stream) noexcept {
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  hipError_t e = hipStreamIsCapturing(stream, &capture);
  if (e != hipSuccess || capture != hipStreamCaptureStatusInvalidated) return e;
  e = hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed);
  if (e == hipSuccess)
    e = hipStreamUpdateCaptureDependencies(stream, nullptr, 0, hipStreamSetCaptureDependencies);
  hipGraph_t empty = nullptr;
  if (e == hipSuccess) e = hipStreamEndCapture(stream, &empty);
  return e == hipSuccess ? hipGraphDestroy(empty) : e;
}

/// Ends a capture. If AMD's runtime fails to end one, because of unjoined work or because it is
/// invalidated, its streams stay captured forever. So unjoined work is joined first, and the graph
/// is destroyed; an invalidated capture is replaced.
inline hipError_t end_capture(hipStream_t stream, hipGraph_t* graph) noexcept {
  Captured capture;
  bool joined = false;
  hipError_t e = hip_find_capture(stream, capture);
  if (e == hipSuccess && capture.graph != nullptr) e = join_all(stream, capture, joined);
  if (e != hipSuccess) return e;
  const hipError_t ended = hipStreamEndCapture(stream, graph);
  if (ended == hipErrorStreamCaptureInvalidated) e = leave_broken_capture(stream);
  if (ended == hipSuccess && joined) e = hipGraphDestroy(*graph);
  if (e != hipSuccess) return e;
  return ended == hipSuccess && joined ? hipErrorStreamCaptureUnjoined : ended;
}

}  // namespace runnel::inline RUNNEL_ABI::rt
