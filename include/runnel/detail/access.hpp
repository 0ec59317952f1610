// SPDX-License-Identifier: Apache-2.0
/// Gives the library's own code access to the private members of the public types. Not in
/// <runnel/stream.hpp>, which users include.
#pragma once

#include <runnel/stream.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

class EventBase;
struct EventNodes;
class StreamCall;
struct Access {
  [[nodiscard]] static StreamRef ref(StreamSlot* slot, std::uint64_t id) noexcept {
    return {slot, id};
  }
  [[nodiscard]] static StreamSlot* slot(StreamRef stream) noexcept { return stream.slot_; }
  /// @throws errc::invalid_handle for a moved-from event
  [[nodiscard]] static const EventNodes& nodes(const EventBase& event, const char* operation);
  /// Adds a node that waits for the event to the graph that the stream is being captured into.
  /// Returns false, and does nothing, if the event is not external or the stream is not being
  /// captured.
  [[nodiscard]] static bool is_waited_for_as_node(const EventBase& event, const StreamCall& call);
  [[nodiscard]] static Partition partition(const PartitionData* data) noexcept {
    return Partition{data};
  }
  [[nodiscard]] static const PartitionData* data(Partition partition) noexcept {
    return partition.data_;
  }
};

}  // namespace runnel::inline RUNNEL_ABI::detail
