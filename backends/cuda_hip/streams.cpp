// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

native::stream default_stream() noexcept { return nullptr; }

native::stream per_thread_default_stream() noexcept { return rt::per_thread_stream(); }

status stream_create(native::stream& stream, bool blocking, int priority) noexcept {
  return rt::stream_create(&stream, blocking ? rt::stream_blocking : rt::stream_non_blocking,
                           priority);
}

status device_divide(int device, const int* wanted, std::size_t count, int* granted,
                     Part* parts) noexcept {
  return rt::device_divide(device, wanted, count, granted, parts);
}

status stream_create_in(native::stream& stream, Part part, int priority) noexcept {
  return rt::stream_create_in(&stream, part, priority);
}

status stream_destroy(native::stream stream) noexcept { return rt::stream_destroy(stream); }

status stream_query(native::stream stream) noexcept { return rt::stream_query(stream); }

status stream_synchronize(native::stream stream) noexcept { return rt::stream_synchronize(stream); }

status stream_priority(native::stream stream, int& priority) noexcept {
  return rt::stream_get_priority(stream, &priority);
}

status stream_is_blocking(native::stream stream, bool& blocking) noexcept {
  unsigned int flags = 0;
  const status s = rt::stream_get_flags(stream, &flags);
  blocking = (flags & rt::stream_non_blocking) == 0;
  return s;
}

status stream_device(native::stream stream, int& device) noexcept {
  return rt::stream_get_device(stream, &device);
}

status stream_is_capturing(native::stream stream, bool& capturing) noexcept {
  return rt::stream_is_capturing(stream, &capturing);
}

// The backend interface numbers the modes as the runtimes do.
static_assert(static_cast<int>(CaptureMode::global) == rt::capture_mode_global);
static_assert(static_cast<int>(CaptureMode::own_only) == rt::capture_mode_own_only);
static_assert(static_cast<int>(CaptureMode::relaxed) == rt::capture_mode_relaxed);

status exchange_capture_mode(CaptureMode& mode) noexcept {
  auto given = static_cast<rt::capture_mode>(mode);
  const status s = rt::exchange_capture_mode(&given);
  mode = static_cast<CaptureMode>(given);
  return s;
}

status stream_capture_number(native::stream stream, std::uint64_t& number) noexcept {
  unsigned long long found = 0;
  const status s = rt::stream_capture_number(stream, &found);
  number = found;
  return s;
}

status stream_begin_capture(native::stream stream, CaptureMode mode) noexcept {
  return rt::stream_begin_capture(stream, static_cast<rt::capture_mode>(mode));
}

status stream_end_capture(native::stream stream, native::graph& graph) noexcept {
  const status s = rt::stream_end_capture(stream, &graph);
  if (s != ok) graph = nullptr;
  return s;
}

void name_stream(native::stream stream, const char* name) noexcept {
  rt::name_stream(stream, name);
}

void push_range(const char* name) noexcept { rt::push_range(name); }

void pop_range() noexcept { rt::pop_range(); }

status launch_host_func(native::stream stream, void (*function)(void*), void* data) noexcept {
  return rt::launch_host_func(stream, function, data);
}

// CUDA's documentation of cudaLaunchHostFunc: after an error in the context, the function is not
// called.
bool forgets_host_functions() noexcept { return true; }

// NVIDIA's driver 580 crashes (docs/decisions/captures.md). AMD's runtime is
// assumed to crash, too.
bool can_query_beside_begin_of_capture() noexcept { return false; }

status stream_wait_value(native::stream stream, std::uint32_t* place,
                         std::uint32_t value) noexcept {
  return rt::stream_wait_value(stream, place, value);
}

status stream_write_value(native::stream stream, std::uint32_t* place,
                          std::uint32_t value) noexcept {
  return rt::stream_write_value(stream, place, value);
}

}  // namespace runnel::inline RUNNEL_ABI::backend
