// SPDX-License-Identifier: Apache-2.0
/// Runs kernels of host spaces so that their exceptions reach the thread that launched them.
/// Without it, an exception that leaves a parallel region of OpenMP, or a function on a thread of
/// Kokkos::Threads, terminates the process.
#pragma once

#include <runnel/detail/kokkos_instances.hpp>

#include <exception>

namespace runnel::inline RUNNEL_ABI::kokkos::detail {

/// The first exception of a kernel's threads.
class FirstException {
 public:
  [[nodiscard]] bool is_kept() const noexcept { return is_kept_.load(std::memory_order_relaxed); }
  /// Stores the current exception, unless one is stored already.
  void keep() noexcept {
    const std::lock_guard lock{mutex_};
    if (!first_) first_ = std::current_exception();
    is_kept_.store(true, std::memory_order_relaxed);
  }
  void rethrow() {
    const std::lock_guard lock{mutex_};
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> is_kept_{false};
  std::mutex mutex_;  // Guards `first_`.
  std::exception_ptr first_;
};

template <class T>
concept TeamMember = requires(const T& member) {
  member.team_barrier();
  member.team_size();
};
template <class T>
[[nodiscard]] bool is_one_of_several(const T& argument) noexcept {
  if constexpr (TeamMember<T>) return argument.team_size() > 1;
  return false;
}

/// Wraps the user's functor and catches its exceptions. It derives from that functor, so that
/// Kokkos finds its types and functions.
template <class F>
class Guarded : public F {
 public:
  Guarded(const F& functor, FirstException& first) : F(functor), first_{&first} {}

  template <class... Arguments>
    requires std::invocable<const F&, Arguments...>
  void operator()(Arguments&&... arguments) const {
    // Not caught: the other threads would wait at the team's barriers for the one that has thrown.
    if ((is_one_of_several(arguments) || ...)) {
      call(std::forward<Arguments>(arguments)...);
      return;
    }
    if (first_->is_kept()) return;
    try {
      call(std::forward<Arguments>(arguments)...);
    } catch (...) {
      first_->keep();
    }
  }

 private:
// Kokkos' index type is wider than the parameter of many functors. Kokkos' own call is in a system
// header, where the compiler does not warn of this.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
  template <class... Arguments>
  void call(Arguments&&... arguments) const {
    static_cast<void>(static_cast<const F&>(*this)(std::forward<Arguments>(arguments)...));
  }
#pragma GCC diagnostic pop

  FirstException* first_;
};

/// Calls `launch_kernel` with the functor. On a host space it passes a functor that catches
/// exceptions, and then throws the first of them.
template <class E, class F, class Launch>
void launch_guarded(const F& functor, Launch launch_kernel) {
  if constexpr (host_space<E> || inline_space<E>) {
    static_assert(std::is_class_v<F> && !std::is_final_v<F>,
                  "the functor has to be an object of a class that is not final");
    FirstException first;
    launch_kernel(Guarded<F>(functor, first));
    first.rethrow();
  } else {
    launch_kernel(functor);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::kokkos::detail
