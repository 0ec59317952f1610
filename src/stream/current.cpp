// SPDX-License-Identifier: Apache-2.0
#include <runnel/current.hpp>

#include "base/catch_errors_into.hpp"
#include "base/process.hpp"
#include "device/current_device.hpp"
#include "device/device_table.hpp"
#include "slot/slots.hpp"

#include <runnel/detail/access.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {

namespace {

StreamRef live_or_default(CurrentStream set, int device) {
  return is_live(set.slot, set.id) ? Access::ref(set.slot, set.id) : default_stream_of(device);
}

/// The device of a stream that is to become current.
/// @throws if the thread must not use streams now, if the stream has ended, or if it is another
/// thread's default stream
int device_to_use(StreamRef stream, const char* operation) {
  enter(operation);
  const int device = stream.device().ordinal();
  const StreamSlot& slot = *Access::slot(stream);
  // Checked first: require_own_thread() reads another cache line.
  if (slot.is_default) [[unlikely]]
    require_own_thread(static_cast<const Slot&>(slot), operation);
  return device;
}

CurrentStream parts(StreamRef stream) { return {Access::slot(stream), stream.id()}; }

/// The thread's current streams, by device.
std::vector<CurrentStream> read_streams(int count) {
  std::vector<CurrentStream> streams;
  for (int device = 0; device < count; ++device) streams.push_back(stream_set_on(device));
  return streams;
}

void set_streams(const std::vector<CurrentStream>& streams) noexcept {
  for (size_t device = 0; device < streams.size(); ++device)
    set_stream_on(static_cast<int>(device), streams[device]);
}

}  // namespace

StreamRef resolve_current_stream() {
  if (cached_device < 0) {
    if (!in_host_function) enter("get the current stream");
    read_current_device("get the current stream");
  }
  const StreamRef stream = default_stream_of(cached_device);
  current = parts(stream);  // The next call takes the fast path.
  return stream;
}

}  // namespace detail

using namespace detail;

StreamRef current_stream(Device device) {
  static_cast<void>(current_stream());  // sets cached_device
  require_device(device.ordinal(), "get the current stream");
  return live_or_default(stream_set_on(device.ordinal()), device.ordinal());
}

void set_current_stream(StreamRef stream) {
  constexpr const char* operation = "set a device's current stream";
  const int device = device_to_use(stream, operation);
  read_current_device(operation);
  set_stream_on(device, parts(stream));
}

void detail::set_if_failed(std::error_code& code) noexcept {
  catch_errors_into(code, [&] { set_if_failed(code, current_stream()); });
}

void StreamRef::use() const {
  constexpr const char* operation = "make a stream current";
  const int device = device_to_use(*this, operation);
  read_current_device(operation);
  change_current_device(device, operation);
  current = parts(*this);
}

StreamGuard::StreamGuard(StreamRef stream) : found_device_{0} { enter(stream); }
StreamGuard::~StreamGuard() { leave(); }

void StreamGuard::enter(StreamRef stream) {
  constexpr const char* operation = "guard a stream";
  guarded_device_ = device_to_use(stream, operation);
  if (cached_device == guarded_device_ && single_device()) [[likely]] {
    found_device_ = Device{guarded_device_};
    found_stream_ = std::exchange(current, parts(stream));
    return;
  }
  found_device_ = Device{read_current_device(operation)};
  found_stream_ = stream_set_on(guarded_device_);
  if (guarded_device_ != found_device_.ordinal()) change_current_device(guarded_device_, operation);
  current = parts(stream);
}

void StreamGuard::leave() noexcept {
  if (is_forked_child()) [[unlikely]]
    return;  // restoring the stream would make current_stream() usable again
  if (single_device()) [[likely]] {
    current = found_stream_;
    return;
  }
  set_stream_on(guarded_device_, found_stream_);
  restore_current_device(found_device_.ordinal());
}

void StreamGuard::reset(StreamRef stream) {
  constexpr const char* operation = "guard a stream";
  const int device = device_to_use(stream, operation);
  // The step that can fail comes first, while the guard is unchanged.
  if (!single_device()) change_current_device(device, operation);
  set_stream_on(guarded_device_, found_stream_);
  found_stream_ = stream_set_on(device);
  guarded_device_ = device;
  current = parts(stream);
}

StreamRef StreamGuard::original_stream() const {
  refuse_in_child("ask what a guard restores");
  const int device = found_device_.ordinal();
  return live_or_default(device == guarded_device_ ? found_stream_ : stream_set_on(device), device);
}

StreamContext::StreamContext() : device_{current_stream().device().ordinal()} {
  streams_ = read_streams(device_count());
}

StreamContext::Guard::Guard(const StreamContext& context) {
  constexpr const char* operation = "apply a stream context";
  enter(operation);
  found_device_ = read_current_device(operation);
  // The steps that can fail come first: if a constructor throws, no destructor restores the
  // streams.
  for (const CurrentStream& each : context.streams_)
    if (is_live(each.slot, each.id))
      static_cast<void>(device_to_use(Access::ref(each.slot, each.id), operation));
  found_ = read_streams(static_cast<int>(context.streams_.size()));
  change_current_device(context.device_, operation);
  set_streams(context.streams_);
}

StreamContext::Guard::~Guard() {
  if (is_forked_child()) return;
  set_streams(found_);
  restore_current_device(found_device_);
}

}  // namespace runnel::inline RUNNEL_ABI
