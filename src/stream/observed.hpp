// SPDX-License-Identifier: Apache-2.0
/// What operations on streams tell the checker, a hook and the trace. Callers ask is_observed(), or is_told(), first.
#pragma once

#include "base/hooks.hpp"
#include "stream/slots.hpp"

#include <runnel/native.hpp>

#include <cstdint>
#include <exception>

namespace runnel::inline RUNNEL_ABI::detail {

/// An operation on a stream. Requires: the stream's device is current if its handle needs that.
[[nodiscard]] HookEvent about(const Slot& slot, HookKind kind, const char* operation) noexcept;
/// The same without the question whether the stream is being captured, which calls the runtime.
[[nodiscard]] HookEvent about_unasked(const Slot& slot, std::uint64_t id, HookKind kind, const char* operation) noexcept;

// Each of these has the requirement of about(), too.
void observe_record(const Slot& slot, native::event event, const char* operation) noexcept;
/// `awaited`: the id of the stream that is waited for, if that is meant.
void observe_wait(const Slot& slot, native::event event, const char* operation, std::uint64_t awaited) noexcept;

void tell_stream_made(const Slot& slot, const char* operation) noexcept;
void observe_stream_end(const Slot& slot, std::uint64_t id) noexcept;
/// An exception that the stream with that id left when it ended, or that came later: nobody will be thrown it.
void tell_lost_exception(std::uint64_t id, const std::exception_ptr& exception) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
