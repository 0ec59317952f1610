// SPDX-License-Identifier: Apache-2.0
#include "base/hang_report.hpp"

#include "base/immortal.hpp"
#include "base/process.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <system_error>

namespace runnel::inline RUNNEL_ABI::detail {

constinit sync::Atomic<std::int64_t> hang_limit{0};

namespace {
constinit sync::Atomic<void (*)(std::FILE*) noexcept> stream_report{nullptr};
}

/// Looks at the waits from time to time. Its thread starts with the first wait, and sleeps while there is none.
class HangReporter {
 public:
  void add(WatchedWait& wait) noexcept {
    const std::lock_guard lock{mutex_};
    if (!started_ && !start()) return;
    wait.next_ = first_;
    wait.link_ = &first_;
    if (first_ != nullptr) first_->link_ = &wait.next_;
    first_ = &wait;
    wait.is_listed_ = true;
    signal_.fetch_add(1, std::memory_order_release);
    signal_.notify_one();
  }
  void remove(WatchedWait& wait) noexcept {
    const std::lock_guard lock{mutex_};
    *wait.link_ = wait.next_;
    if (wait.next_ != nullptr) wait.next_->link_ = wait.link_;
  }
  void stop() noexcept {
    const std::lock_guard lock{reporting_};
    stopped_ = true;
  }

 private:
  struct Found {
    bool is_any = false;
    bool is_late = false;
    char text[200]{};
  };
  [[nodiscard]] bool start() noexcept {
    try {
      sync::Thread{[this] { work(); }}.detach();
    } catch (const std::system_error&) {  // nothing is reported then
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
    call_at_exit([]() noexcept { immortal<HangReporter>().stop(); });
    return started_ = true;
  }
  void work() noexcept {
    const std::chrono::nanoseconds limit{hang_limit.load(std::memory_order_relaxed)};
    const std::chrono::nanoseconds pause =
        std::clamp<std::chrono::nanoseconds>(limit / 8, std::chrono::milliseconds{1}, std::chrono::milliseconds{250});
    for (;;) {
      const std::uint32_t seen = signal_.load(std::memory_order_acquire);
      const Found found = look(limit);
      if (!go_on(found)) return;
      if (found.is_any)
        sync::sleep_for(pause);
      else
        signal_.wait(seen, std::memory_order_acquire);
    }
  }
  /// Reports what was found. False once the process exits.
  [[nodiscard]] bool go_on(const Found& found) noexcept {
    const std::lock_guard lock{reporting_};
    if (!stopped_ && found.is_late) report(found);
    return !stopped_;
  }
  [[nodiscard]] Found look(std::chrono::nanoseconds limit) noexcept {
    Found found;
    const auto now = sync::Clock::now();
    const std::lock_guard lock{mutex_};
    found.is_any = first_ != nullptr;
    for (WatchedWait* wait = first_; wait != nullptr && !found.is_late; wait = wait->next_) {
      if (wait->is_reported_ || now - wait->since_ < limit) continue;
      found.is_late = wait->is_reported_ = true;
      char what[48] = "";
      if (wait->id_ > 0) std::snprintf(what, sizeof what, " (stream id %lld)", static_cast<long long>(wait->id_));
      if (wait->id_ < 0) std::snprintf(what, sizeof what, " (device %lld)", static_cast<long long>(-1 - wait->id_));
      std::snprintf(found.text, sizeof found.text, "thread %d has tried for %s to %s%s", wait->thread_, Age{now - wait->since_}.text,
                    wait->operation_, what);
    }
    return found;
  }
  static void report(const Found& found) noexcept {
    std::fprintf(stderr, "runnel: a wait lasts long: %s\n", found.text);
    if (const auto write = stream_report.load(std::memory_order_acquire)) write(stderr);
    std::fprintf(stderr, "runnel: the wait goes on\n");
    std::fflush(stderr);
  }

  sync::Mutex mutex_;  // guards the list
  WatchedWait* first_ = nullptr;
  bool started_ = false;
  sync::Mutex reporting_;  // held while a report makes runtime calls
  bool stopped_ = false;
  sync::Atomic<std::uint32_t> signal_{0};
};

void WatchedWait::begin(const char* operation, std::int64_t id) noexcept {
  is_begun_ = true;
  if (is_told())
    told_.begin({.kind = HookKind::host_wait,
                 .operation = operation,
                 .stream = id > 0 ? static_cast<std::uint64_t>(id) : 0,
                 .device = id < 0 ? static_cast<int>(-1 - id) : -1});
  if (!are_hangs_reported()) return;
  is_reported_ = false;
  thread_ = gettid();
  operation_ = operation;
  id_ = id;
  since_ = sync::Clock::now();
  immortal<HangReporter>().add(*this);
}
void WatchedWait::end() noexcept {
  if (is_listed_) immortal<HangReporter>().remove(*this);
}

void set_stream_report(void (*write)(std::FILE*) noexcept) noexcept { stream_report.store(write, std::memory_order_release); }

void read_hang_limit() noexcept {
  const char* const text = std::getenv("RUNNEL_HANG_REPORT");
  if (text == nullptr || *text == '\0') return;
  double seconds = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, code] = std::from_chars(text, end, seconds);
  if (code != std::errc{} || rest != end || !(seconds >= 0 && seconds <= 1e9)) {
    std::fprintf(stderr, "runnel: RUNNEL_HANG_REPORT=%s is not understood, and nothing is reported: write a number of seconds\n", text);
    return;
  }
  hang_limit.store(std::llround(seconds * 1e9), std::memory_order_relaxed);
  if (are_hangs_reported()) set_observer(observer_hangs, true);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
