// SPDX-License-Identifier: Apache-2.0
/// Tracks what launch() and copy_async() have enqueued, so that Kokkos' own functions wait for it.
/// Kokkos does not know the streams whose kernels run as host functions. Without this, its fences
/// and copies would be correct on a device and wrong on host spaces.
#pragma once

#include <runnel/detail/attachment.hpp>
#include <runnel/detail/process_wide.hpp>
#include <runnel/event.hpp>

#include <Kokkos_Core.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

namespace runnel::inline RUNNEL_ABI::kokkos::detail {

/// The work that was enqueued on one stream. It is an attachment of the stream. It is never freed,
/// but reused for another stream once the stream was destroyed and its work is complete.
struct Work : runnel::detail::Attachment {
  Work(const void* kind, void (*end)(runnel::detail::Attachment*) noexcept) noexcept
      : Attachment{kind, end} {}
  std::atomic<std::uint64_t> launched{0}, finished{0};  // Functions of launch().
  std::atomic<std::uint64_t> copied{0}, awaited_copies{0};
  std::mutex mutex;                        // Guards `last_copy`, and changes of `copied`.
  std::shared_ptr<const Event> last_copy;  // An event, because the stream may belong to another
                                           // library and may have been destroyed.
  std::atomic<runnel::detail::StreamSlot*> slot{nullptr};
  std::atomic<std::uint64_t> id{0};  // The stream's id; 0 once the stream was destroyed.
  Work* following = nullptr;

  [[nodiscard]] bool has_functions() const noexcept {
    return finished.load(std::memory_order_acquire) != launched.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool has_copies() const noexcept {
    return awaited_copies.load(std::memory_order_relaxed) != copied.load(std::memory_order_relaxed);
  }
};

using BeginFence = decltype(Kokkos::Tools::Experimental::EventSet::begin_fence);
using BeginDeepCopy = decltype(Kokkos::Tools::Experimental::EventSet::begin_deep_copy);

/// The work of all streams. There is one object in the process, so that a fence in one module waits
/// for what other modules have launched. The name in all_work() must change with the layout of
/// AllWork and Work.
struct AllWork {
  std::mutex mutex;
  // Entries are never removed from this list, so reading it needs no lock.
  std::atomic<Work*> first{nullptr};
  std::atomic<bool> finalizing{false};
  std::atomic<int> in_graphs{0};  // The number of functions that are part of graphs. A graph runs
                                  // them on the stream that it is launched on.
  // Kokkos calls the callbacks of one tool only. `found`: the callback that was set before ours;
  // `latest`: the one that has replaced ours since. `ours`: our callback, of one module of the
  // process; `alone`: the same, but it calls no other tool.
  std::atomic<BeginFence> ours_fence{nullptr}, alone_fence{nullptr}, found_fence{nullptr},
      latest_fence{nullptr};
  std::atomic<BeginDeepCopy> ours_copy{nullptr}, alone_copy{nullptr}, found_copy{nullptr},
      latest_copy{nullptr};
};
[[nodiscard]] inline AllWork& all_work() {
  static AllWork& instance = *static_cast<AllWork*>(
      runnel::detail::process_wide("kokkos work 3", []() -> void* { return new AllWork; }));
  return instance;
}

/// The state of the calling thread, shared by all modules.
struct OfThread {
  int quiet = 0;  // If positive, the thread's fences wait for no stream.
  bool passing_on = false;
};
[[nodiscard]] inline OfThread& of_thread() {
  using Get = OfThread& (*)();
  static const Get get =
      reinterpret_cast<Get>(runnel::detail::process_wide("kokkos thread 1", []() -> void* {
        const Get own = []() -> OfThread& {
          static thread_local constinit OfThread state;
          return state;
        };
        return reinterpret_cast<void*>(own);
      }));
  return get();
}
/// While it lives, fences of this thread wait for no stream: Kokkos fences when it creates and
/// destroys instances.
class Quiet {
 public:
  Quiet() { ++of_thread().quiet; }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet() { --of_thread().quiet; }
};

/// Waits for all work submitted to the stream so far. Does nothing in a capture and inside a host
/// function, where waiting is impossible.
inline void wait_for_stream(StreamRef stream) noexcept try {
  if (of_thread().quiet == 0 && !stream.is_capturing() && !stream.query())
    stream.record_event().synchronize();
} catch (...) {  // The stream's next operation reports the error.
}

/// Whether the thread may wait for streams. It may not inside a host function, in a forked child,
/// and while the process exits.
[[nodiscard]] inline bool may_wait() noexcept try {
  return of_thread().quiet == 0 && !runnel::detail::Access::ref(nullptr, 0).is_capturing();
} catch (const Error& error) {
  return error.code() ==
         errc::invalid_handle;  // There is no stream, and the other reasons are checked first.
}

inline void raise(std::atomic<std::uint64_t>& number, std::uint64_t to) noexcept {
  for (std::uint64_t is = number.load(); is < to && !number.compare_exchange_weak(is, to);) {
  }
}

/// Waits until what was enqueued so far has completed. Requires: may_wait().
inline void wait_for_pending_work(Work& work) noexcept try {
  const std::uint64_t launched = work.launched.load();
  for (std::uint64_t count = work.finished.load(); count < launched; count = work.finished.load())
    work.finished.wait(count);
  std::uint64_t copied = 0;
  std::shared_ptr<const Event> last;
  {
    const std::lock_guard lock{work.mutex};
    copied = work.copied.load();
    last = work.last_copy;
  }
  if (copied != work.awaited_copies.load()) last->synchronize();
  raise(work.awaited_copies, copied);
} catch (...) {  // The runtime failed; the stream's next operation reports the error.
}

/// Waits for all streams with functions, and on host spaces for those with copies. A device's
/// fences wait for copies anyway, and its deep_copy() must not wait for any. While there is a graph
/// with functions of launch(), it waits for each Stream that this header has used.
inline void wait_for_all_streams() noexcept {
  constexpr bool is_device = std::is_constructible_v<Kokkos::DefaultExecutionSpace, native::stream>;
  if (all_work().finalizing.load() || of_thread().quiet != 0) return;
  const bool graphs = all_work().in_graphs.load() != 0;
  for (Work* work = all_work().first.load(std::memory_order_acquire); work != nullptr;
       work = work->following) {
    const bool pending = work->has_functions() || (!is_device && work->has_copies());
    if ((graphs || pending) && !may_wait()) return;
    if (pending) wait_for_pending_work(*work);
    runnel::detail::StreamSlot* const slot = graphs ? work->slot.load() : nullptr;
    if (slot != nullptr && slot->owned)
      wait_for_stream(runnel::detail::Access::ref(slot, work->id.load()));
  }
}

/// Whether a fence with that name orders work of streams. The excluded ones are part of other
/// functions: on a device they wait for the caller's instance only, and on a host space all work of
/// that instance was done by the calling thread.
[[nodiscard]] inline bool orders_streams(std::string_view fence) noexcept {
  for (const std::string_view own : {"runnel: ", "HostSpace fence", "Kokkos::View::initialization",
                                     "Kokkos::parallel_", "Kokkos::ThreadsInternal::"})
    if (fence.starts_with(own)) return false;
  return true;
}
[[nodiscard]] inline bool is_of_host(std::uint32_t device) noexcept {
  using Kokkos::Tools::Experimental::DeviceType;
  const DeviceType type = Kokkos::Tools::Experimental::identifier_from_devid(device).type;
  return type == DeviceType::Serial || type == DeviceType::OpenMP || type == DeviceType::Threads;
}

/// Calls the tool that our callback has replaced. If that tool was set after ours and calls ours,
/// the tool that was set before ours is next.
template <class Callback, class... Arguments>
void pass_on(const std::atomic<Callback>& found, const std::atomic<Callback>& latest,
             Arguments... arguments) {
  const bool outer = std::exchange(of_thread().passing_on, true);
  const Callback next = (outer ? found : latest).load();
  if (next != nullptr) next(arguments...);
  of_thread().passing_on = outer;
}
template <bool passes_on>
void begin_fence(const char* name, std::uint32_t device, std::uint64_t* handle) {
  if (is_of_host(device) && orders_streams(name)) wait_for_all_streams();
  if (passes_on) pass_on(all_work().found_fence, all_work().latest_fence, name, device, handle);
}
template <bool passes_on>
void begin_deep_copy(Kokkos::Tools::SpaceHandle to_space, const char* to_name, const void* to,
                     Kokkos::Tools::SpaceHandle from_space, const char* from_name, const void* from,
                     std::uint64_t bytes) {
  wait_for_all_streams();
  if (passes_on)
    pass_on(all_work().found_copy, all_work().latest_copy, to_space, to_name, to, from_space,
            from_name, from, bytes);
}

template <class Callback>
void chain(std::atomic<Callback>& ours, std::atomic<Callback>& alone, std::atomic<Callback>& found,
           std::atomic<Callback>& latest, Callback mine, Callback mine_alone, Callback now,
           void (*set)(Callback)) {
  if (ours.load() == nullptr) {
    found.store(now);
    ours.store(mine);
    alone.store(mine_alone);
  } else if (now == ours.load() || now == alone.load()) {
    return;
  } else if (now ==
             nullptr) {  // The tools are paused: Kokkos restores `ours` when they are resumed.
    set(alone.load());
    return;
  }
  latest.store(now);
  set(ours.load());
}
/// Makes Kokkos call the two functions above, before the tool that is set. Requires: the caller
/// holds AllWork::mutex.
inline void chain_callbacks() {
  namespace tools = Kokkos::Tools::Experimental;
  AllWork& all = all_work();
  const auto now = tools::get_callbacks();
  chain<BeginFence>(all.ours_fence, all.alone_fence, all.found_fence, all.latest_fence,
                    begin_fence<true>, begin_fence<false>, now.begin_fence,
                    tools::set_begin_fence_callback);
  chain<BeginDeepCopy>(all.ours_copy, all.alone_copy, all.found_copy, all.latest_copy,
                       begin_deep_copy<true>, begin_deep_copy<false>, now.begin_deep_copy,
                       tools::set_begin_deep_copy_callback);
}

[[nodiscard]] inline runnel::detail::Attachment* find_attachment(
    const runnel::detail::StreamSlot& slot, const void* key) noexcept {
  runnel::detail::Attachment* found = slot.attachments.load(__ATOMIC_ACQUIRE);
  while (found != nullptr && found->key != key) found = found->next;
  return found;
}
/// Transfers ownership of the attachment to the stream. Requires: the stream has no attachment with
/// the same key.
inline void attach(runnel::detail::StreamSlot& slot,
                   runnel::detail::Attachment* attachment) noexcept {
  attachment->next = slot.attachments.load(__ATOMIC_RELAXED);
  while (!slot.attachments.compare_exchange_weak(attachment->next, attachment, __ATOMIC_RELEASE)) {
  }
}

[[nodiscard]] inline const void* work_key() {
  static const void* const key =
      runnel::detail::process_wide("kokkos work of a stream 2", []() -> void* { return new char; });
  return key;
}
/// A Work that belongs to no stream. Requires: the caller holds AllWork::mutex.
[[nodiscard]] inline Work* unused_work() {
  AllWork& all = all_work();
  for (Work* work = all.first.load(); work != nullptr; work = work->following)
    if (work->id.load() == 0 && !work->has_functions()) return work;
  // The stream was destroyed; its pending work still runs.
  auto* const work = new Work{work_key(), [](runnel::detail::Attachment* ended) noexcept {
                                static_cast<Work*>(ended)->id.store(0);
                              }};
  work->following = all.first.load();
  all.first.store(work, std::memory_order_release);
  return work;
}
/// The Work of the stream. Requires: Kokkos is initialized.
[[nodiscard]] inline Work& work_of(StreamRef stream) {
  static_cast<void>(stream.native());  // Throws if the stream was destroyed.
  runnel::detail::StreamSlot& slot = *runnel::detail::Access::slot(stream);
  if (auto* const found = find_attachment(slot, work_key())) [[likely]]
    return *static_cast<Work*>(found);
  const std::lock_guard lock{all_work().mutex};
  if (auto* const found = find_attachment(slot, work_key())) return *static_cast<Work*>(found);
  chain_callbacks();
  Work* const work = unused_work();
  // The copies of an earlier stream; no one waits for them any more.
  raise(work->awaited_copies, work->copied.load());
  work->slot.store(&slot);
  work->id.store(stream.id());
  attach(slot, work);
  return *work;
}

/// Records a copy that was enqueued on the stream.
inline void note_copy(Work& work, StreamRef stream) noexcept try {
  if (stream.is_capturing()) return;
  auto copied = std::make_shared<const Event>(stream.record_event());
  const std::lock_guard lock{work.mutex};
  work.last_copy.swap(copied);
  work.copied.fetch_add(1);
} catch (...) {  // There is no memory for the event; after this wait none is needed.
  wait_for_stream(stream);
}

/// Counts a function of launch() as pending until it has run and was destroyed, or was discarded.
class Counted {
 public:
  explicit Counted(Work& work) noexcept : work_{&work} { work.launched.fetch_add(1); }
  Counted(Counted&& other) noexcept : work_{std::exchange(other.work_, nullptr)} {}
  Counted& operator=(Counted&&) = delete;
  ~Counted() { finish(); }
  void finish() noexcept {
    Work* const work = std::exchange(work_, nullptr);
    if (work == nullptr) return;
    work->finished.fetch_add(1, std::memory_order_release);
    work->finished.notify_all();
  }

 private:
  Work* work_;
};

}  // namespace runnel::inline RUNNEL_ABI::kokkos::detail
