// SPDX-License-Identifier: Apache-2.0
/// How the library's own code reaches the private parts of the public types. Apart from <runnel/stream.hpp>, which users include.
#pragma once

#include <runnel/stream.hpp>

#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

class EventBase;
class StreamCall;
struct Access {
  [[nodiscard]] static StreamRef ref(StreamSlot* slot, std::uint64_t id) noexcept { return {slot, id}; }
  [[nodiscard]] static StreamSlot* slot(StreamRef stream) noexcept { return stream.slot_; }
  [[nodiscard]] static native::event recorded(const EventBase& event) noexcept;
  [[nodiscard]] static bool is_external(const EventBase& event) noexcept;
  [[nodiscard]] static bool is_waited_for_as_node(const EventBase& event, const StreamCall& call);
  [[nodiscard]] static Partition partition(const PartitionData* data) noexcept { return Partition{data}; }
  [[nodiscard]] static const PartitionData* data(Partition partition) noexcept { return partition.data_; }
};

}  // namespace runnel::inline RUNNEL_ABI::detail
