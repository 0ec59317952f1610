// SPDX-License-Identifier: Apache-2.0
// First use, exit and fork, and sharing between processes. Each case runs in a process of its own,
// with a time limit.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "../support/sanitizers.hpp"
#include "support.hpp"

extern char** environ;

namespace conformance::exit_fork_cases {
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
  const auto end = Clock::now() + bound;
  while (!outcome.in_time) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd readable{ends[0], POLLIN, 0};
    if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) == 0) break;
    char text[4096];
    const ssize_t count = read(ends[0], text, sizeof text);
    if (count > 0)
      outcome.output.append(text, static_cast<size_t>(count));
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

/// A case of exit_cases, and the status with which its process ends.
struct Case {
  const char* name;
  int status = 0;
};
std::ostream& operator<<(std::ostream& out, const Case& of) { return out << of.name; }

class ExitForkBase : public Conformance {
 protected:
  void SetUp() override {
    program_ = std::getenv("RUNNEL_EXIT_CASES");
    SKIP_IF(program_ == nullptr, "RUNNEL_EXIT_CASES does not name the program");
    Conformance::SetUp();
  }
  void expect_passes(const Case& of) const {
    const Ended outcome = run_case(program_, of.name);
    EXPECT_TRUE(outcome.in_time) << "it did not end in time\n" << outcome.output;
    EXPECT_EQ(outcome.status, of.status) << outcome.output;
    EXPECT_TRUE(outcome.output == "passed\n" || outcome.output == "passed\npassed\n")
        << outcome.output;  // "passed" twice: a child printed it too
  }

 private:
  const char* program_ = nullptr;
};

class ExitFork : public ExitForkBase, public testing::WithParamInterface<Case> {};
TEST_P(ExitFork, Passes) {
  const std::string_view name = GetParam().name;
  SKIP_IF(name.starts_with("fork_beside") &&
              (is_under_thread_sanitizer ||
               (is_under_address_sanitizer && name == "fork_beside_busy_threads")),
          "a forked child of several threads may wait for a lock of the sanitizer itself");
  expect_passes(GetParam());
}
#define CASE(name, ...) {#name __VA_OPT__(, ) __VA_ARGS__},
constexpr Case cases[] = {
#include "exit_cases.inc"
};
#undef CASE
const auto name_of = [](const auto& info) { return std::string{info.param.name}; };
INSTANTIATE_TEST_SUITE_P(, ExitFork, testing::ValuesIn(cases), name_of);

class SharingProcesses : public ExitFork {};
TEST_P(SharingProcesses, Pass) { expect_passes(GetParam()); }
constexpr Case sharing_cases[] = {
    {"gone_before"}, {"memory_and_events"}, {"opened_twice"},  {"other_device"},
    {"take_turns"},  {"unseen_device"},     {"wrong_handles"},
};
INSTANTIATE_TEST_SUITE_P(, SharingProcesses, testing::ValuesIn(sharing_cases), name_of);

/// The number that a report has for `name`; -1 if it has none.
long number_in(const std::string& report, const std::string& name) {
  const auto at = report.find('"' + name + "\": ");
  return at == std::string::npos ? -1
                                 : std::strtol(report.c_str() + at + name.size() + 4, nullptr, 10);
}

TEST_F(ExitForkBase, NothingIsDestroyedDuringStaticDestruction) {
  SKIP_IF(std::getenv("RUNNEL_STANDIN") == nullptr,
          "needs a stand-in runtime, which reports the calls");
  const auto path = std::filesystem::temp_directory_path() /
                    ("runnel-exit-" + std::to_string(getpid()) + ".json");
  setenv("STANDIN_REPORT", path.c_str(), 1);
  expect_passes({"static_objects"});
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

}  // namespace conformance::exit_fork_cases
