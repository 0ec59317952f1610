// SPDX-License-Identifier: Apache-2.0
// Events as Python objects.
#pragma once

#include "references.hpp"

#include <runnel/event.hpp>

#include <atomic>
#include <type_traits>
#include <utility>
#include <variant>

namespace binding {

class PyEvent {
 public:
  explicit PyEvent(bool is_timed);
  explicit PyEvent(runnel::Event event) : is_recorded{true}, event_{std::move(event)} {}
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
  /// Ends it: a use of it is refused from now on.
  void close() {
    std::visit(
        [](auto& event) {
          static_cast<void>(std::remove_reference_t<decltype(event)>{std::move(event)});
        },
        event_);
  }
  std::atomic<bool> is_recorded = false;
  SharedObject wrapped;  // of another library
  std::monostate owner;  // nothing else: the event is borrowed

 private:
  std::variant<runnel::Event, runnel::TimedEvent> event_;
};
/// The event in an object. @throws TypeError
[[nodiscard]] PyEvent& as_event(nb::handle object);
/// An event of another library.
[[nodiscard]] nb::object wrap_event(nb::handle object, nb::handle device);
void bind_events(nb::module_& module);

}  // namespace binding
