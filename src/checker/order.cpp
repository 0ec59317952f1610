// SPDX-License-Identifier: Apache-2.0
#include "checker/order.hpp"

#include <algorithm>
#include <utility>

namespace runnel::inline RUNNEL_ABI::checker {

uint32_t Order::take_number() {
  if (unused_.empty()) {
    streams_.emplace_back();
    return static_cast<uint32_t>(streams_.size() - 1);
  }
  const uint32_t number = unused_.back();
  unused_.pop_back();
  return number;
}

std::optional<uint32_t> Order::find(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found != by_id_.end() ? std::optional{found->second} : std::nullopt;
}

uint32_t Order::number_of(const StreamInfo& info) {
  if (const std::optional<uint32_t> known = find(info.id)) return *known;
  const uint32_t number = take_number();
  Stream& stream = streams_[number];
  stream.id = info.id;
  stream.text = detail::describe(info.slot, info.id);
  stream.device = info.slot->device;
  stream.blocking = info.blocking;
  stream.is_legacy_default = info.is_legacy_default;
  stream.has_ended = false;
  by_id_.emplace(info.id, number);
  if (info.slot->is_default) return number;
  if (const auto earlier = borrowed_.find(info.slot->handle); earlier != borrowed_.end())
    add_all_of(stream.awaited_work, earlier->second);
  // Another wrapper of the handle, with another id, may follow.
  if (!info.slot->owned) borrowed_[info.slot->handle] = number;
  return number;
}

void Order::join(Clock& clock, const Clock& other) {
  for (const Epoch& each : other.epochs)
    if (!is_complete(each)) clock.add(each);
}

void Order::add_all_of(Clock& clock, uint32_t number) {
  const Stream& stream = streams_[number];
  join(clock, stream.awaited_work);
  if (stream.submitted > stream.complete) clock.add({number, stream.submitted});
}

Epoch Order::begin(uint32_t number) {
  Stream& stream = streams_[number];
  if (stream.blocking)
    for (uint32_t i = 0; i < streams_.size(); ++i) {
      const Stream& other = streams_[i];
      const bool is_ordered =
          other.blocking && (stream.is_legacy_default || other.is_legacy_default);
      if (i != number && is_ordered && other.device == stream.device)
        add_all_of(stream.awaited_work, i);
    }
  return {number, ++stream.submitted};
}

std::optional<Epoch> Order::find_function(uint64_t operation) const {
  const auto found = functions_.find(operation);
  return found != functions_.end() ? std::optional{found->second} : std::nullopt;
}

void Order::release_stream(uint64_t id, native::stream handle) {
  if (const std::optional<uint32_t> number = find(id)) borrowed_[handle] = *number;
}

void Order::end_stream(uint64_t id) {
  if (const std::optional<uint32_t> number = find(id)) streams_[*number].has_ended = true;
}

void Order::record(native::event event, uint32_t stream) {
  begin(stream);
  Clock& clock = events_[event];
  clock.epochs.clear();
  add_all_of(clock, stream);
}

void Order::wait_for_event(uint32_t waiting, native::event event) {
  begin(waiting);
  Clock& awaited_work = streams_[waiting].awaited_work;
  const auto found = events_.find(event);
  if (found != events_.end()) return join(awaited_work, found->second);
  for (uint32_t i = 0; i < streams_.size(); ++i)
    if (i != waiting) add_all_of(awaited_work, i);
}

void Order::wait_for_stream(uint32_t waiting, uint32_t awaited) {
  begin(awaited);
  begin(waiting);
  add_all_of(streams_[waiting].awaited_work, awaited);
}

void Order::complete(const Clock& clock) noexcept {
  for (const Epoch& epoch : clock.epochs) {
    uint64_t& known = streams_[epoch.stream].complete;
    known = std::max(known, epoch.number);
  }
}

void Order::complete_stream(uint32_t stream) {
  begin(stream);
  complete(streams_[stream].awaited_work);
  streams_[stream].complete = streams_[stream].submitted;
}

void Order::complete_event(native::event event) {
  const auto found = events_.find(event);
  if (found != events_.end()) return complete(found->second);
  for (Stream& stream : streams_) stream.complete = stream.submitted;
}

void Order::complete_device(int device) {
  for (Stream& stream : streams_)
    if (stream.device == device) {
      complete(stream.awaited_work);
      stream.complete = stream.submitted;
    }
}

void Order::forget_complete() {
  const auto is_unwanted = [&](const Epoch& epoch) { return is_complete(epoch); };
  for (auto& [event, clock] : events_) std::erase_if(clock.epochs, is_unwanted);
  // Those whose launch failed, and those that a lost device has dropped.
  std::erase_if(functions_, [&](const auto& each) { return is_unwanted(each.second); });
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    std::erase_if(stream.awaited_work.epochs, is_unwanted);
    if (!stream.has_ended || stream.complete < stream.submitted) continue;
    by_id_.erase(stream.id);
    Stream unused;
    unused.submitted = stream.submitted;
    unused.complete = stream.complete;
    stream = std::move(unused);
    std::erase_if(borrowed_, [&](const auto& each) { return each.second == i; });
    unused_.push_back(i);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::checker
