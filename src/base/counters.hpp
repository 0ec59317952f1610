// SPDX-License-Identifier: Apache-2.0
/// The counts behind `live_objects()`.
#pragma once

#include "base/announce.hpp"
#include "base/max_devices.hpp"
#include "base/not_copied.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

struct Counters {
  sync::Atomic<size_t> streams{0};
  sync::Atomic<size_t> events{0};
  sync::Atomic<size_t> pooled_events{0};
  sync::Atomic<size_t> pinned_blocks{0};
  sync::Atomic<size_t> device_blocks[max_devices]{};
  sync::Atomic<size_t> shared_and_managed_blocks{0};
  sync::Atomic<size_t> graphs{0};
  sync::Atomic<size_t> graph_functions{0};  // functions that graphs own
  sync::Atomic<size_t> graph_runs{0};       // runs of such functions that are pending or running
};
extern constinit Counters counters;

inline void count_up(sync::Atomic<size_t>& counter) noexcept {
  counter.fetch_add(1, std::memory_order_relaxed);
}
inline size_t read_count(const sync::Atomic<size_t>& counter) noexcept {
  return counter.load(std::memory_order_relaxed);
}
/// What the threads count, each for itself, because shared counts would make an enqueue a fifth
/// slower. Functions of graphs are counted elsewhere.
enum class Count : size_t {
  made_functions,  ///< host functions that were enqueued
  ended_functions,
  made_completions,  ///< completion functions that were submitted, and what the thread for them
                     ///< gives back to the program: graphs, blocks of resources
  ended_completions,
  accesses,  ///< parts of copies that the thread is moving: it counts up and down
};
/// The counts of a thread. Those of a thread that ended are reused by the next thread, and are
/// never freed.
struct alignas(64) ThreadCounts {
  std::array<sync::Atomic<size_t>, 5> all{};
  sync::Atomic<bool> is_used{true};  // by a thread
  ThreadCounts* next = nullptr;
  [[nodiscard]] sync::Atomic<size_t>& operator[](Count count) noexcept {
    return all[static_cast<size_t>(count)];
  }
};
// Null before the thread's first count, and after its end.
extern thread_local constinit ThreadCounts* own_counts;

/// For a thread without counts: acquires some. If there is no memory, returns those that such
/// threads share.
[[nodiscard]] ThreadCounts& counts_slowly() noexcept;
inline void count_function(Count which) noexcept {
  if (own_counts == nullptr) [[unlikely]] {
    counts_slowly()[which].fetch_add(1, std::memory_order_release);
    return;
  }
  sync::Atomic<size_t>& count = (*own_counts)[which];
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}
inline void count_ended(Count which) noexcept {
  sync::happens_before(&counters);
  count_function(which);
}

/// In this scope, a call of user code counts as a running function.
class CountedCall : NotCopied {
 public:
  explicit CountedCall(Count made) noexcept : made_{made} { count_function(made); }
  ~CountedCall() { count_ended(static_cast<Count>(static_cast<size_t>(made_) + 1)); }

 private:
  Count made_;
};
/// Whether any host function that was enqueued before the call has not ended, or a graph's function
/// is still pending. Such a function may wait for the program.
bool are_host_functions_under_way() noexcept;
/// The same for host functions and completion functions.
bool are_functions_under_way() noexcept;

extern constinit sync::Atomic<bool> is_memory_untouchable;
/// The scope in which a thread of the library, or of a runtime, moves bytes of the user's memory
/// for a copy. Once the process exits, no thread may: static objects free their memory then.
class UserAccess : NotCopied {
 public:
  UserAccess() noexcept : counts_{own_counts != nullptr ? *own_counts : counts_slowly()} {
    // Either this thread sees that the process exits, or the exiting thread sees the count.
    counts_[Count::accesses].fetch_add(1, std::memory_order_seq_cst);
    is_allowed_ = !is_memory_untouchable.load(std::memory_order_seq_cst);
  }
  ~UserAccess() { counts_[Count::accesses].fetch_sub(1, std::memory_order_release); }
  bool is_allowed() const noexcept { return is_allowed_; }

 private:
  ThreadCounts& counts_;
  bool is_allowed_;
};
/// Allows no access any more, and waits for those that have begun.
void end_user_accesses() noexcept;

inline void count_down(sync::Atomic<size_t>& counter) noexcept {
  counter.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
