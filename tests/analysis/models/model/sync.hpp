// SPDX-License-Identifier: Apache-2.0
/// The types of src/base/sync.hpp in the build of the model checks. The calls are inlined, so that
/// a return address says where the library's source called.
#pragma once

#include "model.hpp"

#include <runnel/config.hpp>

#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#define MODEL_INLINE [[gnu::always_inline]] inline

namespace runnel::inline RUNNEL_ABI::sync {

/// The operations that std::atomic and std::atomic_ref have in common, on the object that
/// Self::at() returns.
template <class Self, class T>
class AtomicOperations {
  static_assert(sizeof(T) <= 8);
  using Order = std::memory_order;
  static constexpr Order seq_cst = std::memory_order_seq_cst;

 public:
  MODEL_INLINE T load(Order order = seq_cst) const noexcept {
    return value(model::load(at(), sizeof(T), order));
  }
  MODEL_INLINE void store(T wanted, Order order = seq_cst) const noexcept {
    model::store(at(), sizeof(T), bits(wanted), order);
  }
  MODEL_INLINE T exchange(T wanted, Order order = seq_cst) const noexcept {
    return change([](std::uint64_t, std::uint64_t fresh) { return fresh; }, wanted, order);
  }
  MODEL_INLINE T fetch_add(T operand, Order order = seq_cst) const noexcept {
    return change([](std::uint64_t old,
                     std::uint64_t more) { return bits(static_cast<T>(value(old) + value(more))); },
                  operand, order);
  }
  MODEL_INLINE T fetch_sub(T operand, Order order = seq_cst) const noexcept {
    return change([](std::uint64_t old,
                     std::uint64_t less) { return bits(static_cast<T>(value(old) - value(less))); },
                  operand, order);
  }
  MODEL_INLINE T fetch_and(T operand, Order order = seq_cst) const noexcept {
    return change([](std::uint64_t old, std::uint64_t mask) { return old & mask; }, operand, order);
  }
  MODEL_INLINE T fetch_or(T operand, Order order = seq_cst) const noexcept {
    return change([](std::uint64_t old, std::uint64_t mask) { return old | mask; }, operand, order);
  }
  MODEL_INLINE bool compare_exchange_strong(T& expected, T wanted, Order order,
                                            Order failure) const noexcept {
    return compare(expected, wanted, order, failure, false);
  }
  MODEL_INLINE bool compare_exchange_strong(T& expected, T wanted,
                                            Order order = seq_cst) const noexcept {
    return compare(expected, wanted, order, without_release(order), false);
  }
  MODEL_INLINE bool compare_exchange_weak(T& expected, T wanted, Order order,
                                          Order failure) const noexcept {
    return compare(expected, wanted, order, failure, true);
  }
  MODEL_INLINE bool compare_exchange_weak(T& expected, T wanted,
                                          Order order = seq_cst) const noexcept {
    return compare(expected, wanted, order, without_release(order), true);
  }
  MODEL_INLINE void wait(T old, Order order = seq_cst) const noexcept {
    model::wait(at(), sizeof(T), bits(old), order);
  }
  MODEL_INLINE void notify_one() const noexcept { model::notify(at(), false); }
  MODEL_INLINE void notify_all() const noexcept { model::notify(at(), true); }

 private:
  MODEL_INLINE void* at() const noexcept { return static_cast<const Self*>(this)->address(); }
  MODEL_INLINE static std::uint64_t bits(T value) noexcept {
    std::uint64_t all = 0;
    __builtin_memcpy(&all, &value, sizeof value);
    return all;
  }
  MODEL_INLINE static T value(std::uint64_t all) noexcept {
    T result;
    __builtin_memcpy(&result, &all, sizeof result);
    return result;
  }
  static constexpr Order without_release(Order order) noexcept {
    return order == Order::acq_rel   ? Order::acquire
           : order == Order::release ? Order::relaxed
                                     : order;
  }
  MODEL_INLINE T change(model::Change how, T operand, Order order) const noexcept {
    return value(model::read_modify_write(at(), sizeof(T), how, bits(operand), order));
  }
  MODEL_INLINE bool compare(T& expected, T wanted, Order order, Order failure,
                            bool weak) const noexcept {
    std::uint64_t found = bits(expected);
    const bool done =
        model::compare_exchange(at(), sizeof(T), found, bits(wanted), order, failure, weak);
    if (!done) expected = value(found);
    return done;
  }
};

template <class T>
class Atomic : public AtomicOperations<Atomic<T>, T> {
 public:
  constexpr Atomic() noexcept : Atomic{T{}} {}
  constexpr Atomic(T initial) noexcept : value_{initial} {
    if (!std::is_constant_evaluated()) model::begin_life(&value_);
  }
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  MODEL_INLINE void* address() const noexcept { return const_cast<T*>(&value_); }

 private:
  alignas(sizeof(T)) T value_;
};

template <class T>
class AtomicRef : public AtomicOperations<AtomicRef<T>, T> {
 public:
  explicit AtomicRef(T& place) noexcept : place_{&place} {}
  MODEL_INLINE void* address() const noexcept { return place_; }

 private:
  T* place_;
};

class Mutex {
 public:
  constexpr Mutex() noexcept {
    if (!std::is_constant_evaluated()) model::begin_life(this);
  }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  MODEL_INLINE void lock() { model::lock(this); }
  MODEL_INLINE bool try_lock() { return model::try_lock(this); }
  MODEL_INLINE void unlock() { model::unlock(this); }

 private:
  [[maybe_unused]] std::uint64_t place_ = 0;  // objects have addresses of their own
};

/// Readers exclude each other here, which the checks do not depend on.
class SharedMutex : public Mutex {
 public:
  MODEL_INLINE void lock_shared() { lock(); }
  MODEL_INLINE void unlock_shared() { unlock(); }
};

class ConditionVariable {
 public:
  ConditionVariable() noexcept { model::begin_life(this); }
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;
  MODEL_INLINE void wait(std::unique_lock<Mutex>& lock) {
    model::wait_condition(this, lock.mutex(), model::TimePoint::max());
  }
  template <class F>
  MODEL_INLINE void wait(std::unique_lock<Mutex>& lock, F holds) {
    while (!holds()) wait(lock);
  }
  template <class Rep, class Period, class F>
  MODEL_INLINE bool wait_for(std::unique_lock<Mutex>& lock, std::chrono::duration<Rep, Period> most,
                             F holds) {
    const model::TimePoint until = model::now() + most;
    while (!holds())
      if (!model::wait_condition(this, lock.mutex(), until)) return holds();
    return true;
  }
  MODEL_INLINE void notify_one() noexcept { model::notify_condition(this, false); }
  MODEL_INLINE void notify_all() noexcept { model::notify_condition(this, true); }

 private:
  [[maybe_unused]] std::uint64_t place_ = 0;
};

class Thread {
 public:
  template <class F>
  explicit Thread(F call) {
    number_ = model::start_thread(
        [](void* own) {
          F* const all = static_cast<F*>(own);
          (*all)();
          delete all;
        },
        new F{std::move(call)});
  }
  int number() const noexcept { return number_; }
  void detach() noexcept {}
  MODEL_INLINE void join() { model::join_thread(number_); }

 private:
  int number_;
};

struct Clock {
  using duration = std::chrono::steady_clock::duration;
  using time_point = std::chrono::steady_clock::time_point;
  static time_point now() noexcept { return model::now(); }
};

class ProcessorClock {
 public:
  ProcessorClock() noexcept = default;
  explicit ProcessorClock(Thread& of) noexcept : thread_{of.number()} {}
  std::chrono::nanoseconds time() const noexcept { return model::processor_time(thread_); }

 private:
  int thread_ = 0;
};

MODEL_INLINE void yield() noexcept { model::yield(); }
template <class Rep, class Period>
MODEL_INLINE void sleep_for(std::chrono::duration<Rep, Period> time) {
  model::sleep_until(model::now() + time);
}
/// Every poll is a point where another thread may continue, so that a few show as much as many.
constexpr int polls(int) noexcept { return 2; }
constexpr int processors(int) noexcept { return 2; }

}  // namespace runnel::inline RUNNEL_ABI::sync
