// SPDX-License-Identifier: Apache-2.0
/// Implements the values in memory that streams wait for and write.
#include <runnel/stream.hpp>

#include "base/check.hpp"
#include "base/process.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "function/host_writers.hpp"
#include "memory/memory_facts.hpp"
#include "memory/values.hpp"
#include "slot/capture.hpp"
#include "slot/stream_call.hpp"

#include <cstdint>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

/// @throws errc::invalid_argument unless devices can wait for a number in this kind of memory and
/// write it. The rule is the same on all backends.
void require_kind(MemoryKind kind, const char* operation) {
  // CUDA refuses memory of its pools, with an error that does not explain why.
  if (kind == MemoryKind::device)
    throw_invalid_argument(operation, "the location is in device memory: take pinned memory");
  if (kind == MemoryKind::pageable)
    throw_invalid_argument(operation, "the location is in pageable memory: take pinned memory");
  if (kind == MemoryKind::managed)
    throw_invalid_argument(
        operation,
        "the location is in managed memory, where a device does not wait: take pinned memory");
}

/// The address of the location on the stream's device. Records a use by the stream if the location
/// is in a pinned block of the library.
uint32_t* location_on_device(const StreamCall& call, const uint32_t* location) {
  Slot& slot = call.slot();
  if (location == nullptr) throw_invalid_argument(call.operation(), "the location is null");
  if (reinterpret_cast<uintptr_t>(location) % sizeof *location != 0)
    throw_invalid_argument(call.operation(), "the location is not aligned to 4 bytes");
  if (!has_stream_values(slot.device))
    throw_error(errc::not_supported, call.operation(),
                "the device has no stream memory operations");
  refuse_in_capture(slot, call.operation(), refusal::value);
  const StreamKey use{&slot, slot.id.load(std::memory_order_relaxed)};
  const MemoryFacts facts =
      facts_of(location, sizeof *location, std::nullopt, use, call.operation());
  require_kind(facts.kind, call.operation());
  auto* const writable = const_cast<uint32_t*>(location);
  if (facts.in_one_block) return writable;
  // Memory that the user has registered may have a different address on the device.
  const ScopedDevice on{slot.device, call.operation()};
  void* on_device = nullptr;
  call.check(backend::host_device_pointer(on_device, writable));
  return static_cast<uint32_t*>(on_device);
}

constexpr const char* waiting = "make a stream wait for a value";

void enqueue_wait(const StreamCall& call, const uint32_t* location, uint32_t value) {
  const BlockingEnqueue enqueued;
  call.check(backend::stream_wait_value(call.handle(), location_on_device(call, location), value));
  emit([&] { return call.about(OperationKind::value_awaited); });
}

}  // namespace

void wait_for_own_value(StreamRef stream, const uint32_t* location, uint32_t value) {
  enqueue_wait(StreamCall{stream, waiting}, location, value);
}

}  // namespace detail

using namespace detail;

void StreamRef::wait_value(const uint32_t* location, uint32_t value) const {
  const StreamCall call{*this, waiting};
  const OutsideWait counted{*this};  // Only now: a refused wait does not count.
  enqueue_wait(call, location, value);
}

void StreamRef::write_value(uint32_t* location, uint32_t value) const {
  const StreamCall call{*this, "make a stream write a value"};
  call.check(backend::stream_write_value(call.handle(), location_on_device(call, location), value));
  emit([&] { return call.about(OperationKind::value_written); });
}

}  // namespace runnel::inline RUNNEL_ABI
