// SPDX-License-Identifier: Apache-2.0
/// The open captures that were begun through the library. Captures of other code are in no list,
/// because nobody reports their end.
#pragma once

#include "backend.hpp"
#include "base/check.hpp"
#include "base/operation.hpp"
#include "base/sync.hpp"

#include <runnel/detail/stream_slot.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

class GraphFunctions;

/// A capture that was begun through the library and is still open.
struct OpenCapture {
  StreamKey begun_on{};
  int device = 0;
  std::thread::id thread{};  // that has begun it
  std::shared_ptr<GraphFunctions> functions{};
  uint64_t number = 0;              // the runtime's; 0 until number_capture()
  const char* broken_by = nullptr;  // the operation that has broken it, if known
  /// False if there is no such capture.
  explicit operator bool() const noexcept { return begun_on.slot != nullptr; }
};
/// Registers a capture that is about to begin, so that no thread starts to wait for its device.
/// @throws std::bad_alloc
void announce_capture(OpenCapture capture);
/// Called right before the library waits for a device. The runtime breaks the captures that are
/// open when the wait begins. So a capture that is announced in the next millisecond begins after
/// that, and a stream of the device joins one of another device after that.
void note_device_wait(int device) noexcept;
void outlast_device_wait(int device) noexcept;
/// Returns a lock: while the caller holds it, no capture begins through the library. If a capture
/// is open already, the lock is returned unlocked. For the library's queries of default streams,
/// which would break the capture of a blocking stream in each capture mode.
[[nodiscard]] std::unique_lock<sync::Mutex> block_captures() noexcept;
/// Stores the runtime's number of a capture that has begun on the stream.
void number_capture(uint64_t stream, uint64_t number) noexcept;
/// The open capture with this number.
[[nodiscard]] OpenCapture find_capture(uint64_t number) noexcept;
/// The open capture of the calling thread.
[[nodiscard]] OpenCapture own_capture() noexcept;
/// The open capture that was begun on the stream.
[[nodiscard]] OpenCapture capture_begun_on(uint64_t stream) noexcept;
/// Whether one was begun on a stream of the device.
bool is_capture_open_on(int device) noexcept;
/// All open captures.
/// @throws std::bad_alloc
[[nodiscard]] std::vector<OpenCapture> open_captures();
/// Stores that the event was recorded on the stream. Only the last record counts, inside an open
/// capture or outside of all.
void note_event(native::stream handle, native::event event) noexcept;
/// Whether the event was last recorded in an open capture. Querying the runtime instead would break
/// the capture.
bool is_event_of_open_capture(native::event event) noexcept;
/// Stores that this operation has broken the capture that was begun on the stream, unless an
/// earlier one has.
void note_broken(uint64_t stream, const char* operation) noexcept;
/// Removes the capture that was begun on the stream, if there is one.
void close_capture(uint64_t stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
