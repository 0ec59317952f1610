// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>

#include "calls.hpp"

using namespace standin;

extern "C" {

vendor::Error API(EventCreateWithFlags)(vendor::EventHandle* handle, unsigned int flags) {
  return call(Call::makes, [&](Lock&) {
    constexpr unsigned int untimed = 2;
    constexpr unsigned int interprocess = 4;
    if (handle == nullptr || flags > 7) return vendor::invalid_value;
    if ((flags & interprocess) != 0 && (flags & untimed) == 0) return vendor::invalid_value;
    auto event = std::make_shared<Event>();
    event->device = this_thread().device;
    event->timed = (flags & untimed) == 0;
    if ((flags & interprocess) != 0) event->shared = SharedRecords::make();
    *handle = reinterpret_cast<vendor::EventHandle>(state().events.add(std::move(event)));
    return vendor::ok;
  });
}

vendor::Error API(EventDestroy)(vendor::EventHandle handle) {
  return call(Call::releases, [&](Lock&) {
    State& now = state();
    return now.events.remove(reinterpret_cast<std::uintptr_t>(handle), now.misuse)
               ? vendor::ok
               : vendor::invalid_handle;
  });
}

vendor::Error API(EventRecord)(vendor::EventHandle handle, vendor::StreamHandle on) {
  return call([&](Lock&) -> int {
    const auto event = state().event(handle);
    const StreamPtr stream = state().stream(on);
    if (event == nullptr || stream == nullptr) return vendor::invalid_handle;
    if (event->device != stream->device) {
      ++state().misuse.wrong_device;
      return vendor::invalid_handle;
    }
    if (const vendor::Code code = refusal(*stream)) return code;
    event->record = std::make_shared<Operation>();
    event->record->kind = Kind::mark;
    event->capture = stream->capturing() ? stream->capture : nullptr;
    if (event->capture != nullptr) {
      event->position = stream->position;
    } else {
      event->number = event->shared == nullptr ? 0 : event->shared->begin();
      if (event->shared != nullptr)
        event->record->run = [shared = event->shared, number = event->number] {
          shared->end(number);
        };
      engine().submit(*stream, event->record);
    }
    return vendor::ok;
  });
}

vendor::Error API(EventQuery)(vendor::EventHandle handle) {
  return call_outside_captures(Call::plain, [&](Lock&) -> int {
    const auto event = state().event(handle);
    if (event == nullptr) return vendor::invalid_handle;
    if (event->capture != nullptr) return break_capture(*event->capture, vendor::captured_event);
    if (const std::uint64_t number = event->foreign_number())
      return event->shared->is_done(number) ? vendor::ok : vendor::not_ready;
    engine().demand(event->record);
    return event->record == nullptr || event->record->done ? vendor::ok : vendor::not_ready;
  });
}

vendor::Error API(EventSynchronize)(vendor::EventHandle handle) {
  return call_outside_captures(Call::plain, [&](Lock& lock) -> int {
    const auto event = state().event(handle);
    if (event == nullptr) return vendor::invalid_handle;
    if (event->capture != nullptr) return break_capture(*event->capture, vendor::captured_event);
    if (const std::uint64_t number = event->foreign_number()) {
      lock.unlock();
      event->shared->wait(number);
      lock.lock();
      return vendor::ok;
    }
    engine().wait(lock, OperationPtr{event->record});
    return vendor::ok;
  });
}

vendor::Error API(EventElapsedTime)(float* milliseconds, vendor::EventHandle start,
                                    vendor::EventHandle stop) {
  return call([&](Lock&) {
    const auto first = state().event(start);
    const auto second = state().event(stop);
    if (first == nullptr || second == nullptr) return vendor::invalid_handle;
    if (first->record == nullptr || second->record == nullptr || !first->timed || !second->timed)
      return vendor::invalid_handle;
    if (first->device != second->device) {
      ++state().misuse.wrong_device;
      return vendor::invalid_handle;
    }
    engine().demand(first->record);
    engine().demand(second->record);
    if (!first->record->done || !second->record->done) return vendor::not_ready;
    *milliseconds =
        std::chrono::duration<float, std::milli>{second->record->finished - first->record->finished}
            .count();
    return vendor::ok;
  });
}

}  // extern "C"
