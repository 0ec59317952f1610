// SPDX-License-Identifier: Apache-2.0

#include "calls.hpp"

using namespace standin;

extern "C" {

Error API(EventCreateWithFlags)(EventHandle* handle, unsigned int flags) {
  return call(Call::makes, [&] {
    constexpr unsigned int untimed = 2;
    constexpr unsigned int interprocess = 4;
    if (handle == nullptr || flags > 7) return invalid_value;
    if ((flags & interprocess) != 0 && (flags & untimed) == 0) return invalid_value;
    auto event = std::make_shared<Event>();
    event->device = this_thread().device;
    event->timed = (flags & untimed) == 0;
    if ((flags & interprocess) != 0) event->shared = SharedRecords::make();
    *handle = state().events.add(std::move(event));
    return ok;
  });
}

Error API(EventDestroy)(EventHandle handle) {
  return call(Call::releases, [&] { return state().events.remove(handle) ? ok : invalid_handle; });
}

Error API(EventRecord)(EventHandle handle, StreamHandle on) {
  return call(on_stream(on, [=](Stream& stream) {
    const auto event = state().events.find(handle);
    if (event == nullptr) return invalid_handle;
    if (event->device != stream.device) {
      ++state().misuse.wrong_device;
      return invalid_handle;
    }
    if (const Code code = refusal(stream)) return code;
    event->record = operation_of({.kind = Kind::mark});
    event->capture = stream.capturing() ? stream.capture : nullptr;
    if (event->capture != nullptr) {
      event->position = stream.position;
    } else {
      event->number = event->shared == nullptr ? 0 : event->shared->begin();
      if (event->shared != nullptr)
        event->record->run = [shared = event->shared, number = event->number] {
          shared->end(number);
        };
      engine().submit(stream, event->record);
    }
    return ok;
  }));
}

Error API(EventQuery)(EventHandle handle) {
  return call_outside_captures(Call::plain, [&] {
    const auto event = state().events.find(handle);
    if (event == nullptr) return invalid_handle;
    if (event->capture != nullptr) return break_capture(*event->capture, captured_event);
    if (const uint64_t number = event->foreign_number())
      return event->shared->is_done(number) ? ok : not_ready;
    engine().demand(event->record);
    return event->record == nullptr || event->record->done ? ok : not_ready;
  });
}

Error API(EventSynchronize)(EventHandle handle) {
  return call_outside_captures(Call::plain, [&](Lock& lock) {
    const auto event = state().events.find(handle);
    if (event == nullptr) return invalid_handle;
    if (event->capture != nullptr) return break_capture(*event->capture, captured_event);
    if (const uint64_t number = event->foreign_number()) {
      lock.unlock();
      event->shared->wait(number);
      lock.lock();
      return ok;
    }
    engine().wait(lock, OperationPtr{event->record});
    state().trim_pools();
    return ok;
  });
}

Error API(EventElapsedTime)(float* milliseconds, EventHandle start, EventHandle stop) {
  return call([&] {
    const auto first = state().events.find(start);
    const auto second = state().events.find(stop);
    if (first == nullptr || second == nullptr) return invalid_handle;
    if (first->record == nullptr || second->record == nullptr || !first->timed || !second->timed)
      return invalid_handle;
    if (first->device != second->device) {
      ++state().misuse.wrong_device;
      return invalid_handle;
    }
    engine().demand(first->record);
    engine().demand(second->record);
    if (!first->record->done || !second->record->done) return not_ready;
    *milliseconds =
        std::chrono::duration<float, std::milli>{second->record->finished - first->record->finished}
            .count();
    return ok;
  });
}

}  // extern "C"
