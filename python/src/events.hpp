// SPDX-License-Identifier: Apache-2.0
// Events as Python objects.
#pragma once

#include "references.hpp"

#include <runnel/event.hpp>

#include <atomic>
#include <variant>

namespace binding {

class PyEvent {
 public:
  explicit PyEvent(bool is_timed);
  PyEvent(const PyEvent&) = delete;
  PyEvent& operator=(const PyEvent&) = delete;

  [[nodiscard]] runnel::detail::EventBase& base() noexcept {
    return std::visit([](auto& event) -> runnel::detail::EventBase& { return event; }, event_);
  }
  [[nodiscard]] bool is_timed() const noexcept { return event_.index() == 1; }
  void record(runnel::StreamRef stream);
  void make_wait(runnel::StreamRef stream) const;
  [[nodiscard]] const runnel::TimedEvent& timed() const {
    return std::get<runnel::TimedEvent>(event_);
  }
  std::atomic<bool> is_recorded = false;

 private:
  std::variant<runnel::Event, runnel::TimedEvent> event_;
};
void bind_events(nb::module_& module);

}  // namespace binding
