// SPDX-License-Identifier: Apache-2.0
/// What runs before what, as far as streams, events and waits of the host say it.
#pragma once

#include "base/sync.hpp"
#include "checker/clock.hpp"

#include <runnel/native.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {

/// A stream, as the checker knows it.
struct StreamInfo {
  std::uint64_t id;
  native::stream handle;
  int device;
  bool owned;              // false: another wrapper of the same handle, with another id, may follow
  bool blocking;           // it orders with the device's default stream
  bool is_legacy_default;  // it is that default stream
  bool is_default;         // its handle means something else on other threads or devices
  const char* name;
  sync::Atomic<std::uint64_t>* known_complete;  // of the slot
};

class Order {
 public:
  /// The number of a stream. A stream that is new gets one.
  [[nodiscard]] std::uint32_t number_of(const StreamInfo& stream);
  /// The number of the stream with that id, if it has one.
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t id) const;
  /// Begins an operation of the stream. Before that, adds what the order between default and
  /// blocking streams demands.
  Epoch begin(std::uint32_t stream);
  void release_stream(std::uint64_t id, native::stream handle);
  void end_stream(std::uint64_t id);

  void record(native::event event, std::uint32_t stream);
  /// An event whose last record is unknown, because other code made it, counts as recorded after
  /// everything.
  void forget(native::event event) { events_.erase(event); }
  void wait_for_event(std::uint32_t waiting, native::event event);
  void wait_for_stream(std::uint32_t waiting, std::uint32_t awaited);

  ///@{ The host knows that these are complete.
  void complete_stream(std::uint32_t stream);
  void complete_event(native::event event);
  void complete_device(int device);
  ///@}

  [[nodiscard]] bool is_complete(Epoch epoch) const noexcept {
    return epoch.number <= streams_[epoch.stream].complete;
  }
  /// Whether the operation comes before whatever is submitted to the stream next.
  [[nodiscard]] bool is_before(Epoch epoch, std::uint32_t stream) const noexcept {
    return epoch.stream == stream || is_complete(epoch) ||
           streams_[stream].behind.number_of(epoch.stream) >= epoch.number;
  }
  /// The last operation of `awaited` that the stream waits for; 0: none.
  [[nodiscard]] std::uint64_t awaited_number(std::uint32_t stream,
                                             std::uint32_t awaited) const noexcept {
    return streams_[stream].behind.number_of(awaited);
  }
  /// As in "Stream(id 7, device 0, upload)".
  [[nodiscard]] const std::string& text_of(std::uint32_t stream) const noexcept {
    return streams_[stream].text;
  }

  /// How many streams and events there are.
  [[nodiscard]] std::size_t size() const noexcept { return streams_.size() + events_.size(); }
  /// Forgets what is complete, so that a long run needs no more memory than a short one.
  void forget_complete();

 private:
  struct Stream {
    std::uint64_t id = 0;
    std::string text;
    Clock behind;  // what the stream's next operation waits for
    // goes on where a stream that ended has left off, so that its epochs stay complete
    std::uint64_t submitted = 0;
    std::uint64_t complete = 0;
    int device = 0;
    bool blocking = false;
    bool is_legacy_default = false;
    bool has_ended = false;
  };

  [[nodiscard]] std::uint32_t take_number();
  /// Adds everything submitted to the other stream, and what that waits for.
  void add_all_of(Clock& clock, std::uint32_t stream);
  void join(Clock& clock, const Clock& other);
  void complete(const Clock& clock) noexcept;

  std::vector<Stream> streams_;
  std::vector<std::uint32_t> unused_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_id_;
  std::unordered_map<native::stream, std::uint32_t> borrowed_;
  std::unordered_map<native::event, Clock> events_;
};

}  // namespace runnel::inline RUNNEL_ABI::checker
