// SPDX-License-Identifier: Apache-2.0
/// A callable on its way into a stream: one heap block, run once and destroyed once, whoever gets to do it.
#pragma once

#include <runnel/detail/stream_slot.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

struct HostFunction {
  void (*run)(HostFunction&);  // may throw
  void (*destroy)(HostFunction*) noexcept;
  StreamSlot* slot = nullptr;  // where an exception goes, if that stream is still alive
  std::uint64_t id = 0;
};

template <class F>
struct HostFunctionOf : HostFunction {
  template <class G>
  explicit HostFunctionOf(G&& g)
      : HostFunction{[](HostFunction& self) { static_cast<void>(static_cast<HostFunctionOf&>(self).function()); },
                     [](HostFunction* self) noexcept { delete static_cast<HostFunctionOf*>(self); }},
        function{std::forward<G>(g)} {}
  F function;
};

template <class F>
[[nodiscard]] HostFunction* make_host_function(F&& function) {
  return new HostFunctionOf<std::decay_t<F>>{std::forward<F>(function)};
}

/// True for a null function pointer and for an empty `std::function` or alike; a lambda is never empty.
template <class F>
[[nodiscard]] bool is_empty_callable(const F& function) {
  if constexpr (std::is_pointer_v<F>)
    return function == nullptr;
  else if constexpr (requires { function.operator bool(); })
    return !function.operator bool();
  else
    return false;
}

/// Enqueues it; owns it from the call on, also when the call throws.
void launch(StreamSlot* slot, std::uint64_t id, HostFunction* function);

}  // namespace runnel::inline RUNNEL_ABI::detail
