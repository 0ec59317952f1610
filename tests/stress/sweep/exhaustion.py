#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes every allocation and every thread start of the library fail in turn, in every scenario of the fault sweep: this call once, or this
one and all later ones. Each run must end in time with exit status 0, so with all its checks passed. Exits 1 if any run failed."""
import argparse
import collections
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import time

from scenarios import path_of, scenarios_of

FORMS = ["once", "lasting"]
KINDS = {"memory": "allocations", "threads": "thread starts"}

Run = collections.namedtuple("Run", "scenario what call form")


class Exhaustion:
    def __init__(self, arguments):
        self.program = arguments.scenarios
        self.limit = arguments.limit
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("STANDIN_", "RUNNEL_", "SWEEP_"))}
        if arguments.standin:
            self.environment["LD_LIBRARY_PATH"] = path_of(arguments.standin)
            self.environment["STANDIN_SCHEDULER"] = arguments.scheduler
        self.environment["RUNNEL_STAGING_WORKERS"] = "2"
        # Some scenarios leave memory to work that may be pending at their end. The program itself counts the library's blocks.
        given = self.environment.get("ASAN_OPTIONS")
        self.environment["ASAN_OPTIONS"] = (given + ":" if given else "") + "detect_leaks=0:allocator_may_return_null=1"
        self.scenarios = scenarios_of(self.program, self.environment, arguments.only)
        for settings in self.scenarios.values():
            settings["RUNNEL_HOST_DEVICES"] = settings.get("STANDIN_DEVICES", "1")
        self.calls = {}  # by scenario and kind
        self.tried = collections.Counter()
        self.thrown = self.absorbed = self.never_came = 0
        self.failures = []

    def start(self, scenario, fault=None):
        """Returns the exit status (a text after a timeout) and the output."""
        environment = self.environment | self.scenarios[scenario]
        if fault is not None:
            environment["SWEEP_EXHAUST"] = f"what={fault.what};call={fault.call};form={fault.form}"
        try:
            done = subprocess.run([self.program, scenario], capture_output=True, text=True, errors="replace", env=environment,
                                  timeout=self.limit)
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as expired:
            return f"no end within {self.limit} s", (expired.stdout or b"").decode(errors="replace")

    def baseline(self):
        """Counts the calls. They vary a little from run to run, so the most of three runs is taken."""
        for scenario in self.scenarios:
            for _ in range(3):
                status, output = self.start(scenario)
                if status == 77:
                    print(output.strip())
                    sys.exit(77)
                if status != 0:
                    print(f"{scenario} without a fault: exit status {status}\n{output}")
                    sys.exit(1)
                for what, noun in KINDS.items():
                    found = int(re.search(rf"(\d+) {noun}", output)[1])
                    self.calls[scenario, what] = max(found, self.calls.get((scenario, what), 0))

    def plan(self, seed):
        """Every thread start, then every allocation once, then every allocation as a lasting fault; shuffled, but for that."""
        shuffled = random.Random(seed)
        parts = [[Run(*key, call, form) for key, count in self.calls.items() if key[1] == what for call in range(1, count + 1)]
                 for what in ("threads", "memory") for form in FORMS]
        for part in parts:
            shuffled.shuffle(part)
        return parts[0] + parts[1] + [run for pair in zip(parts[2], parts[3]) for run in pair]

    def do(self, run):
        status, output = self.start(run.scenario, run)
        self.tried[run.what] += 1
        if status != 0:
            self.failures.append((run, status, output))
            return
        self.never_came += "fault in none" in output
        self.thrown += " 0 thrown" not in output
        self.absorbed += " 0 thrown" in output and "fault in none" not in output

    def all(self, runs, deadline):
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for _ in pool.map(lambda run: self.do(run) if deadline is None or time.monotonic() < deadline else None, runs):
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", required=True, help="the program sweep_scenarios")
    parser.add_argument("--standin", help="the stand-in library, for a CUDA or HIP build")
    parser.add_argument("--bounded", type=float, metavar="SECONDS", help="how long the runs may take, once it is known which there are; default: all runs")
    parser.add_argument("--scheduler", default="eager")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=30, help="time limit of one run, in seconds")
    parser.add_argument("--only", nargs="*", help="only these scenarios")
    parser.add_argument("--show", type=int, default=20, help="how many failures to show")
    arguments = parser.parse_args()

    start = time.monotonic()
    sweep = Exhaustion(arguments)
    sweep.baseline()
    runs = sweep.plan(arguments.seed)
    sweep.all(runs, time.monotonic() + arguments.bounded if arguments.bounded else None)
    for run, status, output in sweep.failures[:arguments.show]:
        print(f"FAILED SWEEP_EXHAUST='what={run.what};call={run.call};form={run.form}' {run.scenario}: exit status {status}")
        print("    " + "\n    ".join(output.strip().splitlines()[-6:]))
    print(f"{len(sweep.scenarios)} scenarios, {sum(n for key, n in sweep.calls.items() if key[1] == 'memory')} allocations and "
          f"{sum(n for key, n in sweep.calls.items() if key[1] == 'threads')} thread starts x {len(FORMS)} forms: {sum(sweep.tried.values())} of "
          f"{len(runs)} runs in {time.monotonic() - start:.0f} s ({sweep.tried['threads']} of thread starts), seed {arguments.seed}; "
          f"{sweep.thrown} times the call threw, {sweep.absorbed} times it had another way, in {sweep.never_came} the call did not happen; "
          f"{len(sweep.failures)} failed")
    sys.exit(1 if sweep.failures or not sum(sweep.tried.values()) else 0)


if __name__ == "__main__":
    main()
