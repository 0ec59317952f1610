// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "interpret.hpp"

namespace random_programs {
namespace {

/// Memory that parent and child share.
struct Page {
  std::atomic<uint64_t> number{0};
  std::atomic_bool claimed{false};  // by the thread that reports a failure
  char why[4096] = {};
};
Page* page = nullptr;

constexpr int failed_status = 3;

std::string describe(int status) {
  if (WIFSIGNALED(status)) return std::string{"signal: "} + strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) == failed_status) return page->why;
  return "the process ended with status " + std::to_string(WEXITSTATUS(status));
}

Page* make_page() {
  void* const memory =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc{};
  return new (memory) Page;
}

/// Waits for the child's end. Kills it if the number has not changed for `patience`.
std::string watch(pid_t child, std::chrono::seconds patience) {
  using Clock = std::chrono::steady_clock;
  uint64_t seen = page->number;
  for (auto since = Clock::now();;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status == 0 ? "" : describe(status);
    if (const uint64_t now = page->number; now != seen) {
      seen = now;
      since = Clock::now();
    }
    if (Clock::now() - since > patience) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "hang: the program did not end in " + std::to_string(patience.count()) + " s";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

}  // namespace

void fail(const std::string& why) {
  if (page != nullptr && !page->claimed.exchange(true)) {
    std::snprintf(page->why, sizeof page->why, "%s", why.c_str());
    _exit(failed_status);
  }
  for (;;) pause();  // another thread is about to end the process
}

Ended run_in_child(uint64_t first, uint64_t end, std::chrono::seconds patience,
                   const std::function<void(uint64_t)>& run) {
  page = make_page();
  page->number = first;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return {false, "no process could be started", first};
  if (child == 0) {
    for (uint64_t number = first; number < end; ++number) {
      page->number = number;
      run(number);
    }
    std::fflush(nullptr);
    _exit(0);
  }
  Ended ended;
  ended.why = watch(child, patience);
  ended.well = ended.why.empty();
  ended.number = page->number;
  munmap(page, sizeof(Page));
  page = nullptr;
  return ended;
}

}  // namespace random_programs
