// SPDX-License-Identifier: Apache-2.0
/// The types that threads share, under names of the library: a build that checks threads replaces them here, for all files at once.
#pragma once

#include <runnel/config.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <thread>

namespace runnel::inline RUNNEL_ABI::sync {

template <class T>
using Atomic = std::atomic<T>;
template <class T>
using AtomicRef = std::atomic_ref<T>;
using Mutex = std::mutex;
using SharedMutex = std::shared_mutex;
using ConditionVariable = std::condition_variable;
using Thread = std::thread;

}  // namespace runnel::inline RUNNEL_ABI::sync
