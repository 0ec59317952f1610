// SPDX-License-Identifier: Apache-2.0
/// The objects of a running program.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <runnel/runnel.hpp>

#include "lower.hpp"

namespace random_programs {

/// What host functions share with the program. They may run after the program's other objects are
/// gone.
struct Shared {
  std::array<std::atomic_int, max_places>
      ran{};  ///< how often the function of an operation has run
  std::array<std::atomic_bool, max_places> opened{};  ///< gates
};

struct StreamObject {
  std::optional<runnel::Stream> stream;
  std::optional<runnel::StreamLease> lease;
};

struct BufferObject {
  std::vector<unsigned char> host;
  std::optional<runnel::HostRegistration> registration;
  std::optional<runnel::PinnedBuffer<unsigned char>> pinned;
  std::optional<runnel::DeviceBuffer<unsigned char>> device;
  std::optional<runnel::ManagedBuffer<unsigned char>> managed;
  // A source that was overwritten after its copy was done at the call. The next use of the buffer
  // puts the bytes back.
  size_t spoiled_at = 0;
  std::vector<unsigned char> spoiled;

  unsigned char* data() {
    if (device) return device->data();
    if (pinned) return pinned->data();
    if (managed) return managed->data();
    return host.data();
  }
  void drop() {
    registration.reset();
    pinned.reset();
    device.reset();
    managed.reset();
    host = {};
    spoiled = {};
  }
};

/// Calls `f` with event number `event`, an Event or a TimedEvent.
struct EventObjects {
  std::array<runnel::Event, event_slots / 2> plain{runnel::Event{},
                                                   runnel::Event{{.external = true}}};
  std::array<runnel::TimedEvent, event_slots / 2> timed{runnel::TimedEvent{},
                                                        runnel::TimedEvent{{.external = true}}};
  static_assert(first_external == 2 && event_slots == 4);

  template <class F>
  decltype(auto) with(int event, F&& f) {
    const auto at = static_cast<size_t>(event / 2);
    return event % 2 == 0 ? f(plain[at]) : f(timed[at]);
  }
};

}  // namespace random_programs
