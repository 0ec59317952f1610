// SPDX-License-Identifier: Apache-2.0
/// The calls that begin, end and describe captures.
#include <algorithm>

#include "calls.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

vendor::CaptureStatus status_of(const Stream& stream) {
  return !stream.capturing()      ? API(StreamCaptureStatusNone)
         : stream.capture->broken ? API(StreamCaptureStatusInvalidated)
                                  : API(StreamCaptureStatusActive);
}

/// Whether nothing of the graph is left that the stream does not wait for.
bool is_joined(const Stream& stream) {
  const Graph& graph = *stream.capture->graph;
  for (size_t i : range(graph.nodes.size()))
    if (!has_successor(graph, i) && std::ranges::find(stream.position, i) == stream.position.end())
      return false;
  return true;
}

/// Ends the capture on all its streams, and leaves it its graph.
GraphPtr end(Capture& capture) {
  capture.ended = true;
  return std::exchange(capture.graph, nullptr);
}

int end_capture(const StreamPtr& stream, GraphHandle* graph) {
  if (!stream->capturing()) return illegal_state;
  const CapturePtr capture = stream->capture;
  const bool elsewhere =
      capture->thread != &this_thread() && capture->mode != API(StreamCaptureModeRelaxed);
  const int code = capture->origin != stream->id ? capture_unmatched
                   : elsewhere                   ? capture_wrong_thread
                   : capture->broken             ? capture_invalidated
                   : !is_joined(*stream)         ? capture_unjoined
                                                 : ok;
  if (code != ok && settings().stuck_captures) {
    if (code == capture_unjoined || code == capture_invalidated) capture->thread = nullptr;
    return code;
  }
  const GraphPtr made = end(*capture);
  if (code == ok) {
    *graph = capture->handle;
  } else {
    forget(capture->handle, *made);
  }
  return code;
}

/// For the pointer that describe() returns: valid until the next call for the stream.
std::vector<NodeHandle>& listed(const Stream& stream) {
  static auto& lists = *new std::map<uint64_t, std::vector<NodeHandle>>;
  return lists[stream.id];
}

int describe(StreamHandle handle, vendor::CaptureStatus* status, unsigned long long* number,
             GraphHandle* graph, const NodeHandle** before, size_t* count) {
  const StreamPtr stream = state().stream(handle);
  if (stream == nullptr) return invalid_handle;
  if (status == nullptr) return invalid_value;
  // this call does not break that capture
  if (captured_beside(*stream) != nullptr) return capture_implicit;
  *status = status_of(*stream);
  if (*status != API(StreamCaptureStatusActive)) return ok;
  const Capture& capture = *stream->capture;
  if (number != nullptr) *number = capture.number;
  if (graph != nullptr) *graph = capture.handle;
  if (count != nullptr) *count = stream->position.size();
  if (before == nullptr) return ok;
  std::vector<NodeHandle>& nodes = listed(*stream);
  nodes.clear();
  for (const size_t node : stream->position) nodes.push_back(capture.graph->nodes[node].handle);
  *before = nodes.data();
  return ok;
}

int update_position(StreamHandle handle, const NodeHandle* nodes, size_t count,
                    unsigned int flags) {
  State& now = state();
  const StreamPtr stream = now.stream(handle);
  if (stream == nullptr) return invalid_handle;
  if (!stream->capturing()) return illegal_state;
  Position position;
  for (size_t i : range(count)) {
    const auto place = now.nodes.find(nodes[i]);
    if (place == nullptr || place->graph != stream->capture->graph) return invalid_value;
    position.push_back(place->number);
  }
  if (flags == API(StreamSetCaptureDependencies)) stream->position.clear();
  wait_for_nodes(*stream, position);
  return ok;
}

}  // namespace

void standin::break_capture_without(const Stream& stream) {
  if (!stream.capturing()) return;
  Capture& capture = *stream.capture;
  if (capture.origin == stream.id) {
    capture.broken = true;
    forget(capture.handle, *end(capture));
    return;
  }
  for (const size_t node : stream.position)
    if (vendor::destroyed_fork_breaks_capture && !has_successor(*capture.graph, node) &&
        !capture.waited_for.contains(node))
      capture.broken = true;
}

extern "C" {

Error API(StreamIsCapturing)(StreamHandle handle, vendor::CaptureStatus* status) {
  return call([&] { return describe(handle, status, nullptr, nullptr, nullptr, nullptr); });
}

Error API(ThreadExchangeStreamCaptureMode)(vendor::CaptureMode* mode) {
  return call([&] {
    if (mode == nullptr || *mode < API(StreamCaptureModeGlobal) ||
        *mode > API(StreamCaptureModeRelaxed))
      return invalid_value;
    *mode = static_cast<vendor::CaptureMode>(
        std::exchange(this_thread().capture_mode, static_cast<int>(*mode)));
    return ok;
  });
}

Error API(StreamBeginCapture)(StreamHandle handle, vendor::CaptureMode mode) {
  Queried::refuse(handle);
  return call(Call::makes, [&] {
    State& now = state();
    const StreamPtr stream = now.stream(handle);
    if (stream == nullptr) return invalid_handle;
    if (stream->kind == StreamKind::legacy) return capture_unsupported;
    const bool left_broken =
        settings().stuck_captures && stream->capturing() && stream->capture->broken;
    if (stream->capturing() && !left_broken) return illegal_state;
    if (left_broken) forget(stream->capture->handle, *end(*stream->capture));
    auto capture = std::make_shared<Capture>();
    capture->number = now.next_capture++;
    capture->origin = stream->id;
    capture->devices = {stream->device};
    capture->blocking = stream->kind == StreamKind::blocking;
    capture->mode = static_cast<int>(mode);
    capture->thread = &this_thread();
    capture->graph = std::make_shared<Graph>();
    capture->handle = now.graphs.add(capture->graph);
    std::erase_if(now.captures, [](const CapturePtr& earlier) { return earlier->ended; });
    now.captures.push_back(capture);
    stream->capture = std::move(capture);
    stream->position.clear();
    return ok;
  });
}

// A fault of the form `executed` ends the capture, and gives no graph.
Error API(StreamEndCapture)(StreamHandle handle, GraphHandle* graph) {
  GraphHandle made{};
  Queried::refuse(handle);
  const Error e = call([&] {
    const StreamPtr stream = state().stream(handle);
    return stream == nullptr ? invalid_handle : end_capture(stream, &made);
  });
  const Lock lock{engine().mutex};
  if (e != API(Success) && made != nullptr) forget(made, *state().graphs.find(made));
  *graph = e == API(Success) ? made : nullptr;
  return e;
}

Error API(StreamWaitEvent)(StreamHandle handle, EventHandle event, unsigned int flags) {
  return call([&] {
    const StreamPtr stream = state().stream(handle);
    const auto found = state().events.find(event);
    if (stream == nullptr || found == nullptr) return invalid_handle;
    if (flags != 0) return invalid_value;
    if (found->shared != nullptr && found->device != stream->device) {  // CUDA's driver 580 crashes
      ++state().misuse.wrong_device;
      return invalid_handle;
    }
    if (const Code code = refusal(*stream)) return code;
    const CapturePtr& capture = found->capture;
    if (capture != nullptr && !capture->ended) {
      if (capture->broken) return capture_invalidated;
      if (stream->kind == StreamKind::legacy) return break_capture(*capture, capture_implicit);
      if (stream->capturing() && stream->capture != capture) {
        break_capture(*stream->capture, capture_merge);
        return break_capture(*capture, capture_merge);
      }
      if (!stream->capturing()) stream->position.clear();
      stream->capture = capture;
      capture->devices.insert(stream->device);
      wait_for_nodes(*stream, found->position);
      capture->waited_for.insert(found->position.begin(), found->position.end());
      return ok;
    }
    if (stream->capturing()) return break_capture(*stream->capture, capture_isolation);
    if (capture != nullptr) return captured_event;
    if (const uint64_t number = found->foreign_number()) {
      engine().submit(
          *stream,
          operation_of({.run = [shared = found->shared, number] { shared->wait(number); }}));
      return ok;
    }
    if (found->record != nullptr) engine().submit(*stream, operation_of(), {found->record});
    return ok;
  });
}

#ifdef STANDIN_CUDA

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* number, cudaGraph_t* graph,
                                     const cudaGraphNode_t** before, const cudaGraphEdgeData**,
                                     size_t* count) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* number, cudaGraph_t* graph,
                                     const cudaGraphNode_t** before, size_t* count) {
#endif
  return call([&] { return describe(handle, status, number, graph, before, count); });
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData*, size_t count,
                                                unsigned int flags) {
#else
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* nodes,
                                                size_t count, unsigned int flags) {
#endif
  return call([&] { return update_position(handle, nodes, count, flags); });
}

#else

hipError_t hipStreamGetCaptureInfo(hipStream_t handle, hipStreamCaptureStatus* status,
                                   unsigned long long* number) {
  return call([&] { return describe(handle, status, number, nullptr, nullptr, nullptr); });
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t handle, hipStreamCaptureStatus* status,
                                      unsigned long long* number, hipGraph_t* graph,
                                      const hipGraphNode_t** before, size_t* count) {
  return call([&] { return describe(handle, status, number, graph, before, count); });
}

hipError_t hipStreamUpdateCaptureDependencies(hipStream_t handle, hipGraphNode_t* nodes,
                                              size_t count, unsigned int flags) {
  return call([&] { return update_position(handle, nodes, count, flags); });
}

#endif

}  // extern "C"
