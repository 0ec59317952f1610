// SPDX-License-Identifier: Apache-2.0
#include "capture.hpp"

#include "base/sync.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {
namespace {

constinit sync::Mutex captures_mutex;
constinit std::uint64_t captures_so_far = 0;
constexpr backend::status refused = status_of(errc::capture);
constexpr backend::status broken_earlier = status_of(backend::CaptureFault::broken);

/// Invalidates the capture. Returns the status of the call that did it.
backend::status break_capture(Capture& capture, backend::CaptureFault fault) noexcept {
  capture.is_broken = true;
  return status_of(fault);
}

/// Adds the stream to the capture, with a new chain.
/// @throws std::bad_alloc; nothing has changed then
void enter(native::host_stream& stream, const std::shared_ptr<Capture>& capture) {
  capture->streams.reserve(capture->streams.size() + 1);
  capture->steps.push_back(0);
  capture->streams.push_back(&stream);
  stream.chain = capture->work->chains++;
  stream.capture = capture;
  stream.captured.store(true, std::memory_order_release);
}

void leave(native::host_stream& stream) noexcept {
  stream.captured.store(false, std::memory_order_release);
  stream.capture = nullptr;
}

void end(Capture& capture) noexcept {
  capture.has_ended = true;
  for (native::host_stream* const stream : capture.streams)
    if (stream != nullptr) leave(*stream);
  capture.streams.clear();
}

/// @throws std::bad_alloc; nothing has changed then
void add_step(Capture& capture, GraphWork::Step step) {
  capture.work->steps.push_back(step);
  ++capture.steps[step.chain];
}

/// @throws std::bad_alloc; nothing has changed then
void add_node(Capture& capture, std::size_t chain, native::host_graph_node node) {
  std::list<native::host_graph_node> single;
  single.push_back(std::move(node));
  add_step(capture, {chain, &single.front(), {}});
  capture.work->nodes.splice(capture.work->nodes.end(), single);
}

/// Whether chain 0 has waited, directly or indirectly, for each node of the other chains.
[[nodiscard]] bool is_joined(const GraphWork& work) {
  std::vector<std::vector<GraphWork::Step>> chains(work.chains);
  for (const GraphWork::Step& step : work.steps) chains[step.chain].push_back(step);
  // by chain: the number of its steps that precede chain 0
  std::vector<std::size_t> reached(work.chains, 0);
  std::vector<Position> open{{0, chains[0].size()}};
  while (!open.empty()) {
    const Position position = open.back();
    open.pop_back();
    for (std::size_t& done = reached[position.chain]; done < position.steps; ++done)
      if (const GraphWork::Step& step = chains[position.chain][done]; step.node == nullptr)
        open.push_back(step.after);
  }
  for (std::size_t chain = 0; chain < work.chains; ++chain)
    if (std::any_of(chains[chain].begin() + static_cast<std::ptrdiff_t>(reached[chain]),
                    chains[chain].end(),
                    [](const GraphWork::Step& step) { return step.node != nullptr; }))
      return false;
  return true;
}

}  // namespace

backend::status begin_capture(native::host_stream& stream, backend::CaptureMode mode) {
  if (stream.is_default) return refused;
  const std::lock_guard lock{captures_mutex};
  if (stream.capture != nullptr) return invalid_argument;
  const auto capture =
      std::make_shared<Capture>(Capture{captures_so_far + 1, mode, std::this_thread::get_id()});
  enter(stream, capture);
  ++captures_so_far;
  return backend::ok;
}

backend::status end_capture(native::host_stream& stream, std::shared_ptr<const GraphWork>& work) {
  const std::lock_guard lock{captures_mutex};
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr || stream.chain != 0) return refused;
  const bool ends_here = capture->mode == backend::CaptureMode::relaxed ||
                         capture->thread == std::this_thread::get_id();
  end(*capture);
  if (!ends_here || capture->is_broken || !is_joined(*capture->work)) return refused;
  work = capture->work;
  return backend::ok;
}

void leave_capture(native::host_stream& stream) noexcept {
  const std::lock_guard lock{captures_mutex};
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  capture->streams[stream.chain] = nullptr;
  const bool began_here = stream.chain == 0;
  leave(stream);
  if (!began_here) return;  // Unjoined work is detected at the end.
  capture->is_broken = true;
  end(*capture);  // A capture can only be ended on that stream.
}

std::uint64_t capture_number(const native::host_stream& stream) noexcept {
  const std::lock_guard lock{captures_mutex};
  const std::shared_ptr<Capture> capture = stream.capture;
  return capture == nullptr || capture->is_broken ? 0 : capture->number;
}

std::optional<backend::status> capture_node(native::host_stream& stream,
                                            native::host_graph_node node) {
  const std::lock_guard lock{captures_mutex};
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return std::nullopt;
  if (capture->is_broken) return broken_earlier;
  add_node(*capture, stream.chain, std::move(node));
  return backend::ok;
}

std::optional<backend::status> capture_allocation(native::host_stream& stream, void* block) {
  const std::lock_guard lock{captures_mutex};
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return std::nullopt;
  if (capture->is_broken) return broken_earlier;
  capture->work->memory.reserve();
  add_node(*capture, stream.chain, {backend::NodeKind::allocation, {}});
  capture->work->memory.add(block);
  return backend::ok;
}

backend::status capture_mark(const native::host_stream& stream, CapturedMark& mark) {
  const std::lock_guard lock{captures_mutex};
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return backend::ok;
  if (capture->is_broken) return broken_earlier;
  mark = {capture, {stream.chain, capture->steps[stream.chain]}};
  return backend::ok;
}

backend::status wait_in_capture(native::host_stream& stream, const CapturedMark& mark) {
  const std::lock_guard lock{captures_mutex};
  using backend::CaptureFault;
  const std::shared_ptr<Capture> own = stream.capture;
  if (own != nullptr && own->is_broken) return broken_earlier;
  if (mark.capture->has_ended)
    return own == nullptr ? status_of(CaptureFault::ended)
                          : break_capture(*own, CaptureFault::outside);
  if (mark.capture->is_broken) return broken_earlier;
  if (own != nullptr && own != mark.capture) {
    mark.capture->is_broken = true;
    return break_capture(*own, CaptureFault::two_captures);
  }
  if (own == nullptr) {
    if (stream.is_default) return break_capture(*mark.capture, CaptureFault::default_stream);
    enter(stream, mark.capture);
  }
  if (stream.chain != mark.position.chain)
    add_step(*mark.capture, {stream.chain, nullptr, mark.position});
  return backend::ok;
}

backend::status break_on_outside_wait(const native::host_stream& stream) noexcept {
  const std::lock_guard lock{captures_mutex};
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return backend::ok;
  return capture->is_broken ? broken_earlier
                            : break_capture(*capture, backend::CaptureFault::outside);
}

}  // namespace runnel::inline RUNNEL_ABI::host
