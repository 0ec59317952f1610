// SPDX-License-Identifier: Apache-2.0
/// A device of the checks, beneath the library's sources: a thread for each stream, which executes
/// commands in order. It has no other order than a real device's: events and values are all that
/// the host learns.
#pragma once

#include "backend.hpp"
#include "support.hpp"

#include "slot/retire.hpp"
#include "slot/slots.hpp"

#include <cstdint>
#include <deque>
#include <functional>

namespace runnel::inline RUNNEL_ABI {

struct native::host_stream {
  checks::sync::Mutex mutex;
  checks::sync::ConditionVariable changed;
  std::deque<std::function<void()>> commands;
  std::uint64_t submitted = 0;
  checks::sync::Atomic<std::uint64_t> completed{0};
  bool is_destroyed = false;
};
struct native::host_event {
  checks::sync::Mutex mutex;
  native::host_stream* stream = nullptr;
  std::uint64_t number = 0;
};

}  // namespace runnel::inline RUNNEL_ABI

namespace checks {

namespace native = runnel::native;
namespace backend = runnel::backend;

void submit(native::stream stream, std::function<void()> command);
/// Waits until the stream has executed everything, as stream_synchronize() does.
void synchronize(native::stream stream);
bool is_idle(native::stream stream);

/// Makes the slot live with a stream of its own.
void begin_stream(runnel::detail::Slot& slot, uint64_t id);
/// A live slot with a stream of its own.
runnel::detail::Slot& make_slot(uint64_t id);
/// The slots whose streams have ended.
struct FreeSlots {
  sync::Mutex mutex;
  runnel::detail::Slot* first = nullptr;
  int count = 0;  // how often one has ended
};
FreeSlots& free_slots();
/// The same with a slot whose stream has ended and is complete; null if there is none.
runnel::detail::Slot* reuse_slot(uint64_t id);
/// All slots of the run.
struct AllSlots {
  sync::Mutex mutex;
  runnel::detail::Slot* all[4] = {};
  int count = 0;
};
AllSlots& all_slots();

/// The copy of the device that fails, counted from 1; 0: none.
extern int failing_copy;
/// How many events the library has created.
extern constinit sync::Atomic<int> events_made;
/// In the end all of them are in the pool. Returns how many.
int expect_all_pooled();

}  // namespace checks
