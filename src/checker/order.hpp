// SPDX-License-Identifier: Apache-2.0
/// The order of operations that streams, events and waits of the host establish.
#pragma once

#include "checker/clock.hpp"

#include <runnel/detail/stream_slot.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {

/// A stream, as the checker sees it.
struct StreamInfo {
  uint64_t id;
  const detail::StreamSlot* slot;
  bool blocking;           // it orders with the device's default stream
  bool is_legacy_default;  // It is that default stream.
};

class Order {
 public:
  /// The number of the stream with this id, if it has one.
  [[nodiscard]] std::optional<uint32_t> find(uint64_t id) const;
  /// The number of a stream. A new stream receives one.
  uint32_t number_of(const StreamInfo& stream);
  /// Begins an operation of the stream. First adds the order between default and blocking streams.
  Epoch begin(uint32_t stream);
  ///@{ The same for a host function, which is looked up while it runs. `operation` is not 0.
  void begin_function(uint32_t stream, uint64_t operation) {
    functions_.insert_or_assign(operation, begin(stream));
  }
  [[nodiscard]] std::optional<Epoch> find_function(uint64_t operation) const;
  void end_function(uint64_t operation) { functions_.erase(operation); }
  ///@}
  void release_stream(uint64_t id, native::stream handle);
  void end_stream(uint64_t id);

  void record(native::event event, uint32_t stream);
  /// For an event that other code may have recorded: a wait for it counts as a wait for all work.
  void forget(native::event event) { events_.erase(event); }
  void wait_for_event(uint32_t waiting, native::event event);
  void wait_for_stream(uint32_t waiting, uint32_t awaited);

  /// @{ The host knows that these are complete.
  void complete_stream(uint32_t stream);
  void complete_event(native::event event);
  void complete_device(int device);
  ///@}

  bool is_complete(Epoch epoch) const noexcept {
    return epoch.number <= streams_[epoch.stream].complete;
  }
  /// Whether the operation precedes whatever is submitted to the stream next.
  bool is_before(Epoch epoch, uint32_t stream) const noexcept {
    return epoch.stream == stream || is_complete(epoch) ||
           streams_[stream].awaited_work.number_of(epoch.stream) >= epoch.number;
  }
  /// Whether `waiting` runs after `awaited`. Waits that its stream has received since count, too.
  bool is_awaited(Epoch awaited, Epoch waiting) const noexcept {
    return waiting.stream == awaited.stream
               ? waiting.number > awaited.number
               : awaited_number(waiting.stream, awaited.stream) >= awaited.number;
  }
  /// The last operation of `awaited` that the stream waits for; 0: none.
  uint64_t awaited_number(uint32_t stream, uint32_t awaited) const noexcept {
    return streams_[stream].awaited_work.number_of(awaited);
  }
  /// As in "Stream(id 7, device 0, upload)".
  const std::string& text_of(uint32_t stream) const noexcept { return streams_[stream].text; }

  /// The number of streams and events.
  size_t size() const noexcept { return streams_.size() + events_.size(); }
  /// Forgets complete operations, so that a long run needs no more memory than a short one.
  void forget_complete();

 private:
  struct Stream {
    uint64_t id = 0;
    std::string text;
    Clock awaited_work;  // what the stream's next operation waits for
    // A new stream continues the count of an ended one, so that the old epochs stay complete.
    uint64_t submitted = 0;
    uint64_t complete = 0;
    int device = 0;
    bool blocking = false;
    bool is_legacy_default = false;
    bool has_ended = false;
  };

  [[nodiscard]] uint32_t take_number();
  /// Adds all work of the other stream so far, and whatever that work waits for.
  void add_all_of(Clock& clock, uint32_t stream);
  void join(Clock& clock, const Clock& other);
  void complete(const Clock& clock) noexcept;

  std::vector<Stream> streams_;
  std::vector<uint32_t> unused_;
  std::unordered_map<uint64_t, uint32_t> by_id_;
  std::unordered_map<native::stream, uint32_t> borrowed_;
  std::unordered_map<native::event, Clock> events_;
  std::unordered_map<uint64_t, Epoch> functions_;  // that have not ended
};

}  // namespace runnel::inline RUNNEL_ABI::checker
