// SPDX-License-Identifier: Apache-2.0
/// Synchronization, threads and time, under the library's own names. A build that checks threads
/// replaces them here, for all files at once.
#pragma once

#ifdef RUNNEL_MODEL
#include <model/sync.hpp>  // tests/analysis/models
#else

#include <runnel/config.hpp>

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <thread>

#ifdef RUNNEL_FIND_RACES
#include "base/sync_hidden.hpp"
#else
namespace runnel::inline RUNNEL_ABI::sync {

using Mutex = std::mutex;
using SharedMutex = std::shared_mutex;
using ConditionVariable = std::condition_variable;
using ConditionVariableAny = std::condition_variable_any;

}  // namespace runnel::inline RUNNEL_ABI::sync
#endif

namespace runnel::inline RUNNEL_ABI::sync {

template <class T>
using Atomic = std::atomic<T>;
template <class T>
using AtomicRef = std::atomic_ref<T>;
using Thread = std::thread;

using Clock = std::chrono::steady_clock;
inline void yield() noexcept { std::this_thread::yield(); }
template <class Rep, class Period>
void sleep_for(std::chrono::duration<Rep, Period> time) {
  std::this_thread::sleep_for(time);
}

/// How much processor time a thread has used.
class ProcessorClock {
 public:
  ProcessorClock() noexcept = default;
  explicit ProcessorClock(Thread& of) noexcept { pthread_getcpuclockid(of.native_handle(), &id_); }
  std::chrono::nanoseconds time() const noexcept {
    timespec t{};
    if (clock_gettime(id_, &t) != 0) return std::chrono::nanoseconds{0};
    return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
  }

 private:
  clockid_t id_{};
};

/// Scales the number of polls of a loop, and the number of processors. A model-checking build
/// reduces both.
[[nodiscard]] constexpr int polls(int count) noexcept { return count; }
constexpr int processors(int count) noexcept { return count; }

}  // namespace runnel::inline RUNNEL_ABI::sync

#endif
