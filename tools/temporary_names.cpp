// SPDX-License-Identifier: Apache-2.0
#include "temporary_names.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace tool {

namespace {

// Fixed storage, because a signal handler must not allocate memory or take a lock.
struct Slot {
  std::atomic<bool> in_use{false};
  char name[PATH_MAX] = {};
};
constinit std::array<Slot, 3> slots{};  // For the result, the timeline and the trace.
static_assert(std::atomic<bool>::is_always_lock_free);

/// The signals with which another process, or a time limit, terminates the command.
constexpr int ending_signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                  SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU};

void remove_all_and_end(int signal) {
  for (Slot& slot : slots)
    if (slot.in_use.load()) ::unlink(slot.name);
  // Terminate the process by the same signal, so that a shell sees the reason.
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

void watch_signals() {
  for (const int signal : ending_signals) {
    struct ::sigaction found{};
    // Ignored signals stay ignored, because nohup relies on that.
    if (::sigaction(signal, nullptr, &found) != 0 || found.sa_handler == SIG_IGN) continue;
    struct ::sigaction action{};
    action.sa_handler = remove_all_and_end;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

Temporary make_temporary(const std::filesystem::path& pattern) {
  static const bool watched = (watch_signals(), true);
  static_cast<void>(watched);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = slots[i];
    if (slot.in_use.load()) continue;
    if (pattern.native().size() >= sizeof slot.name) return {-1, -1, ENAMETOOLONG};

    // Block signals until the new file is in the list.
    ::sigset_t ending, before;
    ::sigemptyset(&ending);
    for (const int signal : ending_signals) ::sigaddset(&ending, signal);
    ::pthread_sigmask(SIG_BLOCK, &ending, &before);
    std::strcpy(slot.name, pattern.c_str());
    const int descriptor = ::mkostemp(slot.name, O_CLOEXEC);
    const int error = errno;
    slot.in_use.store(descriptor >= 0);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return descriptor >= 0 ? Temporary{static_cast<int>(i), descriptor, 0}
                           : Temporary{-1, -1, error};
  }
  return {-1, -1, EMFILE};
}

const char* temporary_name(int slot) noexcept { return slots[static_cast<std::size_t>(slot)].name; }

void remove_temporary(int slot) noexcept {
  ::unlink(temporary_name(slot));
  release_temporary(slot);
}

void release_temporary(int slot) noexcept {
  slots[static_cast<std::size_t>(slot)].in_use.store(false);
}

}  // namespace tool
