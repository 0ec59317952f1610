// SPDX-License-Identifier: Apache-2.0
/// Runs random programs against an oracle; README.md says what they do and how to read a failure.

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <runnel/runnel.hpp>

#include "child.hpp"
#include "interpret.hpp"
#include "lower.hpp"
#include "shrink.hpp"
#include "text.hpp"

namespace {
using namespace random_programs;

struct Options {
  uint64_t seed = 1;
  uint64_t count = 100;
  uint64_t failures = 1;
  int patience = 30;
  int repeats = 1;
  bool shrinks = false;
  bool prints = false;
  bool here = false;
  bool small = false;
  Limits limits;
  Machine machine;
};

/// What the environment says of the machine. A GPU's runtime reserves the right to run one host
/// function at a time and to wait in calls.
void look_at_machine(Options& options, bool one_host_function) {
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  };
  const bool on_standin = number("RUNNEL_STANDIN") != 0;
  const bool on_threads = std::string{RUNNEL_BACKEND} == "host" || on_standin;
  Machine& machine = options.machine;
  machine.devices = options.limits.devices;
  machine.one_host_function =
      one_host_function || !on_threads || number("STANDIN_HOST_FUNCTIONS") == 1;
  machine.calls_may_wait = !on_threads || (on_standin && std::getenv("STANDIN_POOLS") != nullptr);
  machine.gates_hold_all = machine.one_host_function || number("STANDIN_CHANNELS") > 0 ||
                           number("STANDIN_MEMORY_MIB") > 0 ||
                           std::getenv("RUNNEL_HOST_MEMORY") != nullptr;
  const bool is_checked = std::getenv("RUNNEL_CHECK") != nullptr;
  // the stand-ins themselves allocate memory
  machine.allocation_faults = on_threads && !on_standin && !is_checked;
  machine.functions_order = !is_checked;
}

Calls lower_program(const Program& program, const Options& options) {
  return lower(program, options.machine);
}

/// The programs have no races: a report of the race checker is a mistake of the checker.
void run_one(const Program& program, const Options& options) {
  runnel::RaceChecker::set_handler([](const char* report, void*) { fail(report); });
  interpret(program, lower_program(program, options));
}

/// Whether the program fails, in a child process of its own. A failure may need luck, so it is
/// tried several times.
bool fails(const Program& program, const Options& options) {
  const auto times = static_cast<uint64_t>(options.repeats);
  return !run_in_child(0, times, std::chrono::seconds{std::min(options.patience, 5)},
                       [&](uint64_t) { run_one(program, options); })
              .well;
}

void report(const Ended& ended, const Options& options) {
  Program program = generate(ended.number, options.limits);
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(ended.number), ended.why.c_str());
  if (!options.shrinks)
    return static_cast<void>(std::printf("run again with --seed %llu --count 1 --shrink\n",
                                         static_cast<unsigned long long>(ended.number)));
  if (!fails(program, options)) {
    std::printf("alone it did not fail again in %d run(s): see --repeats\n", options.repeats);
    return;
  }
  program = shrink(program, [&](const Program& candidate) { return fails(candidate, options); });
  std::printf("shrunk to %zu operations:\n%s", program.operations.size(),
              to_text(program, lower_program(program, options)).c_str());
  std::fflush(stdout);
  if (options.here) run_one(program, options);
}

int run_all(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const uint64_t end = options.seed + options.count;
  uint64_t failed = 0, at = options.seed;
  while (at < end && failed < options.failures) {
    // A child runs a few thousand programs, so that what they leave behind in a process does not
    // add up.
    const uint64_t until = std::min<uint64_t>(end, at + 5000);
    const Ended ended =
        run_in_child(at, until, std::chrono::seconds{options.patience},
                     [&](uint64_t seed) { run_one(generate(seed, options.limits), options); });
    at = ended.well ? until : ended.number + 1;
    if (ended.well) continue;
    ++failed;
    report(ended, options);
    std::fflush(stdout);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const auto done = static_cast<unsigned long long>(at - options.seed);
  std::printf("%llu programs, %llu failed, %.1f s, %.0f programs per second\n", done,
              static_cast<unsigned long long>(failed), seconds,
              static_cast<double>(done) / seconds);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool one_host_function = false;
  CLI::App app{"Runs random programs over the public API and compares every byte with an oracle."};
  app.add_option("--seed", options.seed, "Number of the first program")->capture_default_str();
  app.add_option("--count", options.count, "How many programs to run")->capture_default_str();
  app.add_option("--operations", options.limits.operations,
                 "About how many operations a program has")
      ->check(CLI::Range(1, 120))
      ->capture_default_str();
  app.add_option("--devices", options.limits.devices, "How many devices programs use")
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  app.add_option("--threads", options.limits.threads, "Most threads of a program")
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  app.add_option("--failures", options.failures, "Stop after this many failures")
      ->capture_default_str();
  app.add_option("--patience", options.patience, "Seconds after which a program counts as hung")
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "How often a program is tried while it is shrunk")
      ->capture_default_str();
  app.add_flag("--shrink", options.shrinks, "Shrink a failing program and print its calls");
  app.add_flag("--print", options.prints,
               "Print the calls of the program of --seed instead of running it");
  app.add_flag("--here", options.here,
               "Run what --shrink leaves in this process, too: for a debugger");
  app.add_flag("--small", options.small, "No copies of several MiB");
  app.add_flag("--rows", options.limits.rows,
               "Mostly rows and lists of copies between pageable and device memory");
  app.add_flag("--staged", options.limits.staged,
               "Nothing but copies of several MiB between pageable and device memory");
  app.add_flag("--one-host-function-at-a-time", one_host_function,
               "Host functions wait for no other ones; the default on a GPU");
  CLI11_PARSE(app, argc, argv);
  options.limits.large = !options.small;
  look_at_machine(options, one_host_function);
  if (!options.prints) return run_all(options);
  const Program program = generate(options.seed, options.limits);
  std::fputs(to_text(program, lower_program(program, options)).c_str(), stdout);
}
