// SPDX-License-Identifier: Apache-2.0
// First use, exit and fork, and sharing between processes. Each case runs in a process of its own,
// with a time limit.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../support/sanitizers.hpp"
#include "support.hpp"

extern char** environ;

namespace {
using namespace runnel;
using namespace conformance;
using test_support::is_under_address_sanitizer;
using test_support::is_under_thread_sanitizer;

struct Ended {
  int status = -1;  // exit status of the process; 100 + n if signal n ended it
  bool in_time = false;
  std::string output;
};

Ended run_case(const char* program, const char* name) {
  // 200 forks beside busy threads take 20 s under sanitizers on two busy cores
  constexpr std::chrono::seconds bound{60};
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  char* const arguments[] = {const_cast<char*>(program), const_cast<char*>(name), nullptr};
  pid_t child = 0;
  const int spawned = posix_spawn(&child, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Ended outcome;
  if (spawned != 0) {
    close(ends[0]);
    outcome.output = "cannot be started: " + std::string{program};
    return outcome;
  }

  // The output ends when the process ends, because nothing that the process starts outlives it.
  const auto end = std::chrono::steady_clock::now() + bound;
  while (!outcome.in_time) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd readable{ends[0], POLLIN, 0};
    if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) == 0) break;
    char text[4096];
    const ssize_t count = read(ends[0], text, sizeof text);
    if (count > 0)
      outcome.output.append(text, static_cast<std::size_t>(count));
    else
      outcome.in_time = true;
  }
  close(ends[0]);
  if (!outcome.in_time) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
  return outcome;
}

class ExitFork : public Conformance {
 protected:
  void SetUp() override {
    program_ = std::getenv("RUNNEL_EXIT_CASES");
    if (program_ == nullptr) GTEST_SKIP() << "RUNNEL_EXIT_CASES does not name the program";
    Conformance::SetUp();
  }
  void expect_passes(const char* name, int status = 0) const {
    const Ended outcome = run_case(program_, name);
    EXPECT_TRUE(outcome.in_time) << name << " did not end in time\n" << outcome.output;
    EXPECT_EQ(outcome.status, status) << name << '\n' << outcome.output;
    EXPECT_TRUE(outcome.output == "passed\n" || outcome.output == "passed\npassed\n")
        << name << '\n'
        << outcome.output;  // "passed" twice: a child printed it too
  }

 private:
  const char* program_ = nullptr;
};

TEST_F(ExitFork, FirstUseFromManyThreadsAtOnce) { expect_passes("first_use_from_many_threads"); }
TEST_F(ExitFork, StaticObjectsExitCleanly) { expect_passes("static_objects"); }
TEST_F(ExitFork, AStaticBufferOfAResourceExitsCleanly) {
  expect_passes("static_buffers_of_a_resource");
}
TEST_F(ExitFork, ThreadLocalObjectsExitCleanly) { expect_passes("thread_local_objects"); }
TEST_F(ExitFork, ExitFromAHostFunction) { expect_passes("exit_from_a_host_function", 7); }
TEST_F(ExitFork, ExitWithABlockedStreamIsBounded) { expect_passes("exit_with_a_closed_gate"); }
TEST_F(ExitFork, ExitOnAnotherThreadWithABlockedStreamIsBounded) {
  expect_passes("exit_on_another_thread_with_a_closed_gate", 7);
}
TEST_F(ExitFork, ExitWithAValueThatNeverComesIsBounded) {
  expect_passes("exit_with_a_value_that_never_comes");
}
TEST_F(ExitFork, QuiesceThenExitWithAClosedGate) {
  expect_passes("quiesce_then_exit_with_a_closed_gate");
}
TEST_F(ExitFork, ExitWithPendingCompletions) { expect_passes("exit_with_pending_completions"); }
TEST_F(ExitFork, ExitFromACompletionFunction) {
  expect_passes("exit_from_a_completion_function", 7);
}
TEST_F(ExitFork, NoCopyTouchesMemoryOfStaticObjectsThatEnd) {
  expect_passes("exit_with_copies_of_static_memory");
}
TEST_F(ExitFork, ExitBesideBusyCompletions) { expect_passes("exit_beside_busy_completions"); }
/// The number that a report has for `name`; -1 if it has none.
long number_in(const std::string& report, const std::string& name) {
  const auto at = report.find('"' + name + "\": ");
  return at == std::string::npos ? -1
                                 : std::strtol(report.c_str() + at + name.size() + 4, nullptr, 10);
}

TEST_F(ExitFork, NothingIsDestroyedDuringStaticDestruction) {
  if (std::getenv("RUNNEL_STANDIN") == nullptr)
    GTEST_SKIP() << "needs a stand-in runtime, which reports the calls";
  const auto path = std::filesystem::temp_directory_path() /
                    ("runnel-exit-" + std::to_string(getpid()) + ".json");
  setenv("STANDIN_REPORT", path.c_str(), 1);
  expect_passes("static_objects");
  unsetenv("STANDIN_REPORT");
  std::stringstream report;
  report << std::ifstream{path}.rdbuf();
  std::filesystem::remove(path);
  EXPECT_GT(number_in(report.str(), "made_streams"), 0) << report.str();
  EXPECT_EQ(number_in(report.str(), "live_streams"), number_in(report.str(), "made_streams"))
      << report.str();
  EXPECT_EQ(number_in(report.str(), "live_events"), number_in(report.str(), "made_events"))
      << report.str();
}

TEST_F(ExitFork, UseInAForkedChildIsRefusedAndTheParentContinues) {
  expect_passes("fork_then_use_in_the_child");
}
TEST_F(ExitFork, AForkedChildExitsCleanlyAndTheParentContinues) {
  expect_passes("fork_then_exit_in_the_child");
}
TEST_F(ExitFork, ForkedChildrenNeverWaitForALockOfTheirParents) {
  if (is_under_address_sanitizer || is_under_thread_sanitizer)
    GTEST_SKIP() << "a forked child of several threads may wait for a lock of the sanitizer itself";
  expect_passes("fork_beside_busy_threads");
}
TEST_F(ExitFork, CompletionsAreRefusedInAForkedChild) {
  if (is_under_thread_sanitizer)
    GTEST_SKIP() << "a forked child of several threads may wait for a lock of the sanitizer itself";
  expect_passes("fork_beside_completions");
}
TEST_F(ExitFork, AForkedChildHasNoCurrentStream) { expect_passes("fork_inside_a_guard"); }
TEST_F(ExitFork, UseInAChildForkedInAHostFunctionIsRefused) {
  expect_passes("fork_in_a_host_function");
}
TEST_F(ExitFork, AStaticGuardExitsCleanly) { expect_passes("static_guard"); }
TEST_F(ExitFork, AGuardThatOutlivesTheLibrarysThreadLocalsExitsCleanly) {
  expect_passes("thread_local_guard");
}
TEST_F(ExitFork, AForkedChildCanExec) { expect_passes("fork_then_exec"); }
TEST_F(ExitFork, AChildForkedBeforeFirstUseCanUseTheLibrary) {
  expect_passes("fork_before_first_use");
}

class SharingProcesses : public ExitFork {};
TEST_F(SharingProcesses, MemoryAndEventsOrderTheWorkOfTwoProcesses) {
  expect_passes("memory_and_events");
}
TEST_F(SharingProcesses, TwoProcessesTakeTurns) { expect_passes("take_turns"); }
TEST_F(SharingProcesses, WrongHandlesAreRefused) { expect_passes("wrong_handles"); }
TEST_F(SharingProcesses, AHandleOpenedTwiceIsTheSameObject) { expect_passes("opened_twice"); }
TEST_F(SharingProcesses, WhatIsGoneCannotBeOpened) { expect_passes("gone_before"); }
TEST_F(SharingProcesses, AnotherDevicesStreamWaits) { expect_passes("other_device"); }
TEST_F(SharingProcesses, AnotherDeviceIsNamed) { expect_passes("unseen_device"); }
// These too need processes of their own, because a variable is read at first use.
TEST_F(ExitFork, AWaitThatLastsLongIsReportedOnceAndGoesOn) { expect_passes("hang_report"); }
TEST_F(ExitFork, AWaitForAnEventIsReportedWithItsStream) {
  expect_passes("hang_report_of_an_event");
}
TEST_F(ExitFork, ExitWhileMemoryIsGivenBackIsBounded) {
  expect_passes("exit_with_a_release_under_way");
}
TEST_F(ExitFork, WithoutAThreadMemoryIsGivenBackInPlace) {
  expect_passes("releases_without_a_thread");
}
TEST_F(ExitFork, WaitsForMemoryAreReported) { expect_passes("hang_report_of_memory"); }
TEST_F(ExitFork, ACopyThatWaitsIsReported) { expect_passes("hang_report_of_a_copy"); }
TEST_F(ExitFork, AHangReportThatIsNotUnderstoodIsOff) { expect_passes("no_hang_report"); }
TEST_F(ExitFork, AValueThatIsNotUnderstoodIsReported) { expect_passes("settings_not_understood"); }

}  // namespace
