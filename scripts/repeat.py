#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats a GoogleTest program beside background load and counts the failures of each case. Each repetition runs the cases in another order
(--gtest_shuffle). A case that hangs or crashes is counted too, and the repetitions go on in a new process. Exits 1 if anything failed."""
import argparse
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STATE = re.compile(r"^\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] ([\w/]+\.[\w/]+)")
ITERATION = re.compile(r"^Repeating all tests \(iteration (\d+)\)")


class Count:
    """What became of one case in all repetitions."""

    def __init__(self):
        self.ok = self.failed = self.hung = self.crashed = 0
        self.first = ""  # the end of the output of the first failure

    @property
    def bad(self):
        return self.failed + self.hung + self.crashed


def spin(count):
    """Starts `count` processes that each keep one processor busy, at the same priority as the tests."""
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]


def read_output(lines, counts):
    """Counts the results in the output of one process. Returns the case that was running at its end, and how many iterations began."""
    running, iterations, text = None, 0, []
    for line in lines:
        if ITERATION.match(line):
            iterations += 1
        found = STATE.match(line)
        if not found:
            text.append(line)
            continue
        state, case = found.groups()
        if state == "RUN":
            running, text = case, []
        elif running == case:  # the summary at the end repeats the names of the failed cases; then none is running
            running = None
            if state == "FAILED":
                counts[case].failed += 1
                counts[case].first = counts[case].first or "".join(text[-30:])
            else:
                counts[case].ok += 1
    return running, iterations, "".join(text[-30:])


def one_process(arguments, seed, repetitions, counts):
    """Runs some repetitions in one process. Returns how many of them began."""
    command = [arguments.program, "--gtest_shuffle", f"--gtest_random_seed={seed % 99999 + 1}", f"--gtest_repeat={repetitions}",
               f"--gtest_filter={arguments.filter}", "--gtest_color=no"]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        limit = arguments.limit * repetitions
        try:
            status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=limit, check=False).returncode
        except subprocess.TimeoutExpired:
            status = None
        output.seek(0)
        running, began, text = read_output(output, counts)
    if running is None and status in (0, 1):
        return repetitions
    count = counts[running or "(between cases)"]
    count.first = count.first or text
    if status is None:
        count.hung += 1
    else:
        count.crashed += 1
    end = f"did not end within {limit} s" if status is None else f"ended the process, status {status}"
    print(f"seed {seed}: {running} {end}", flush=True)
    return max(began, 1)


def report(counts, done, seconds, load):
    bad = {case: count for case, count in counts.items() if count.bad}
    runs = sum(count.ok + count.bad for count in counts.values())
    print(f"{done} repetitions, {len(counts)} cases, {runs} runs of a case in {seconds:.0f} s beside {load} busy processes: "
          f"{sum(count.bad for count in bad.values())} failures of {len(bad)} cases")
    if bad:
        print(f"{'failed':>7} {'hung':>5} {'crashed':>8} {'of':>6}  case")
    for case, count in sorted(bad.items(), key=lambda item: -item[1].bad):
        print(f"{count.failed:7d} {count.hung:5d} {count.crashed:8d} {count.ok + count.bad:6d}  {case}")
    for case, count in bad.items():
        print(f"\nthe first failure of {case}:\n{count.first}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="a GoogleTest program")
    parser.add_argument("--times", type=int, default=1000, help="how often all cases are run")
    parser.add_argument("--seconds", type=float, help="begin no further process after this time")
    parser.add_argument("--per-process", type=int, default=5, help="repetitions in one process")
    parser.add_argument("--load", type=int, default=os.cpu_count(), help="processes that compute all the time beside the tests")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one repetition; more is a hang")
    parser.add_argument("--filter", default="*", help="as --gtest_filter")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.per_process < 1:
        parser.error("--per-process has to be 1 or more")
    if not shutil.which(arguments.program):
        parser.error(f"{arguments.program} is no program")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the report is printed then, too
    counts = collections.defaultdict(Count)
    start = time.monotonic()
    done = 0
    load = spin(arguments.load)
    try:
        while done < arguments.times and (arguments.seconds is None or time.monotonic() - start < arguments.seconds):
            done += one_process(arguments, arguments.seed + done, min(arguments.per_process, arguments.times - done), counts)
            failures = sum(count.bad for count in counts.values())
            print(f"{done} of {arguments.times} repetitions, {time.monotonic() - start:.0f} s, {failures} failures", flush=True)
    finally:
        for process in load:
            process.kill()
            process.wait()
        report(counts, done, time.monotonic() - start, arguments.load)
    sys.exit(1 if not counts or any(count.bad for count in counts.values()) else 0)


if __name__ == "__main__":
    main()
