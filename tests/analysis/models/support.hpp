// SPDX-License-Identifier: Apache-2.0
/// What the model checks share.
#pragma once

#include "../../support/loops.hpp"
#include "base/sync.hpp"

#include <iterator>
#include <mutex>

namespace checks {

using std::size_t, std::uint32_t, std::uint64_t, std::uint8_t;
using test_support::range, test_support::repeat;
namespace sync = runnel::sync;

/// Runs the functions in a thread each, and waits for them.
template <class... F>
void together(F... run) {
  sync::Thread threads[] = {sync::Thread{run}...};
  for (sync::Thread& thread : threads) thread.join();
}

class Gate {
 public:
  void open() {
    const std::lock_guard lock{mutex_};
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  sync::Mutex mutex_;
  sync::ConditionVariable changed_;
  bool open_ = false;
};

/// An object that the run leaves behind, as it may leave threads behind: the checker frees all
/// memory of a run at once.
template <class T>
T& lasting() {
  return *new T{};
}

/// Runs a check, which may take such an object.
inline void run(void (*check)()) { check(); }
template <class T>
void run(void (*check)(T&)) {
  check(lasting<T>());
}

}  // namespace checks

#define CHECK(name) {#name, [] { checks::run(name); }}
/// The program that explores these checks.
#define MODEL_CHECKS(...)                                   \
  int main(int argc, char** argv) {                         \
    constexpr model::Check all[] = {__VA_ARGS__};           \
    return model::explore(argc, argv, all, std::size(all)); \
  }
