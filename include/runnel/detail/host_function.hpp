// SPDX-License-Identifier: Apache-2.0
/// A callable that is enqueued on a stream: one heap block, which is called once and destroyed
/// once, on any thread.
#pragma once

#include <runnel/detail/stream_slot.hpp>

#include <cstddef>
#include <new>
#include <type_traits>

namespace runnel::inline RUNNEL_ABI::detail {

/// A function that a stream can call: by value, without arguments.
template <class F>
concept HostCallable =
    std::is_invocable_v<std::decay_t<F>&> && std::is_constructible_v<std::decay_t<F>, F>;

/// For a refused overload: what no other overload takes.
struct Anything {
  template <class T>
  Anything(const T&) noexcept {}
};

struct HostFunction {
  void (*run)(HostFunction&);  // May throw.
  void (*destroy)(HostFunction*) noexcept;
  StreamSlot* slot = nullptr;  // The stream that stores an exception, if it was not destroyed.
  std::uint64_t id = 0;
  std::uint64_t label = 0;  // The host_function_label of the thread that launched the function.
  // `epoch`: see Timeline::epoch(). `operation`: the number of the launch if it was observed, or 0.
  std::uint64_t epoch = 0, operation = 0;
  bool is_writer = false;  // The library counts it as an unfinished writer of host memory.
};

// Host functions are created on one thread and destroyed on another, at a high rate, so they have
// an allocator of their own.
[[nodiscard]] void* allocate_block(std::size_t bytes);
void free_block(void* block, std::size_t bytes) noexcept;

template <class F>
struct HostFunctionOf : HostFunction {
  template <class G>
  explicit HostFunctionOf(G&& g)
      : HostFunction{
            [](HostFunction& self) {
              static_cast<void>(static_cast<HostFunctionOf&>(self).function());
            },
            [](HostFunction* self) noexcept { delete static_cast<HostFunctionOf*>(self); }},
        function{std::forward<G>(g)} {}
  static void* operator new(std::size_t bytes) { return allocate_block(bytes); }
  static void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
    return allocate_block(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  static void operator delete(void* block, std::size_t bytes) noexcept { free_block(block, bytes); }
  static void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return ::operator new(bytes, alignment);
  }
  static void operator delete(void* block, std::size_t, std::align_val_t alignment) noexcept {
    ::operator delete(block, alignment);
  }

  F function;
};

template <class F>
[[nodiscard]] HostFunction* make_host_function(F&& function) {
  return new HostFunctionOf<std::decay_t<F>>{std::forward<F>(function)};
}

/// True for a null function pointer, and for an empty `std::function` or similar type; false for a
/// lambda.
template <class F>
[[nodiscard]] bool is_empty_callable(const F& function) {
  if constexpr (std::is_pointer_v<F>)
    return function == nullptr;
  else if constexpr (requires { function.operator bool(); })
    return !function.operator bool();
  else
    return false;
}

/// Enqueues the function. Takes ownership of it, also if the call throws.
void launch(StreamSlot* slot, std::uint64_t id, HostFunction* function, bool writes_host_memory);

}  // namespace runnel::inline RUNNEL_ABI::detail
