// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

bool collect_activities(ActivitySink sink, char* text, std::size_t size) noexcept {
  return rt::collect_activities(sink, text, size);
}

void deliver_activities(bool last) noexcept { rt::deliver_activities(last); }

bool activity_time(std::uint64_t& nanoseconds) noexcept { return rt::activity_time(nanoseconds); }

bool activity_stream(native::stream stream, std::uint32_t& number) noexcept {
  return rt::activity_stream(stream, number);
}

}  // namespace runnel::inline RUNNEL_ABI::backend
