// SPDX-License-Identifier: Apache-2.0
#include "stream/checked.hpp"

#include "stream/stream_call.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/race_checker.hpp>

#include <array>

namespace runnel::inline RUNNEL_ABI {
namespace detail {

void declare_access(StreamSlot* slot, std::uint64_t id, MemoryAccess access, const void* pointer, std::size_t bytes,
                    const MemoryKind* kind) {
  const StreamCall call{Access::ref(slot, id), "declare an access"};
  if (bytes == 0 || !is_checked(call.slot())) return;
  const std::array side{checker::Side{access, {pointer, bytes, bytes, 1}, kind != nullptr ? std::optional{*kind} : std::nullopt, false}};
  checker::uses_memory(info_of(call.slot()), "declared work", side);
}

}  // namespace detail

void RaceChecker::assume_complete(StreamRef stream) {
  if (is_on()) detail::tell_complete(detail::StreamCall{stream, "declare a stream complete"}.slot());
}

void RaceChecker::assume_wait(StreamRef waiting, StreamRef awaited) {
  if (!is_on()) return;
  constexpr const char* operation = "declare a wait";
  const detail::StreamCall later{waiting, operation};
  const detail::StreamCall earlier{awaited, operation};
  checker::waits_for_stream(detail::info_of(later.slot()), detail::info_of(earlier.slot()));
}

}  // namespace runnel::inline RUNNEL_ABI
