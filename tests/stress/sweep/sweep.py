#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes every runtime call of every scenario fail once, in each form and with each code, on a stand-in runtime. Each run must end in time
with exit status 0, so with all its checks passed, and the stand-in must report no misuse and no leak. Exits 1 if any run failed. With
--collectives it is every call and every operation of the library of collective operations that fails."""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

from scenarios import path_of, scenarios_of

FORMS = ["refused", "executed", "sticky"]
# 600 ("not ready") is an answer of queries, so only queries return it. 123456 is an unknown error number.
CODES = [2, 4, 35, 46, 100, 101, 201, 400, 700, 719, 900, 901, 902, 903, 904, 905, 906, 907, 908, 999, 123456]
NOT_READY = 600
# Of NCCL and RCCL. `query` is a call that asks for errors of operations, of which threads make many; `operation` is an operation that fails
# when it runs. 99 is an unknown number.
CCL_FORMS = ["refused", "executed", "query", "operation"]
MOST_QUERIES = 8
CCL_CODES = [1, 2, 3, 4, 5, 6, 7, 99]
IN_PROGRESS = 7  # of an operation this is no error: it waits until its timeout, or for ever
MISUSE = ["double_destroy", "use_after_destroy", "unknown_handle", "wrong_device", "double_free", "use_after_free", "inside_host_function"]
# A failed copy through pinned memory gives up its ring, and the next copy makes a new one. Each ring has two blocks.
PINNED_KEPT = 4

Run = collections.namedtuple("Run", "scenario call form code")


class Sweep:
    def __init__(self, arguments):
        self.program = arguments.scenarios
        self.limit = arguments.limit
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("STANDIN_", "RUNNEL_"))}
        self.environment["LD_LIBRARY_PATH"] = path_of(arguments.standin)
        self.environment["STANDIN_SCHEDULER"] = arguments.scheduler
        self.environment["RUNNEL_STAGING_WORKERS"] = "1"
        for sanitizer in ("ASAN_OPTIONS", "TSAN_OPTIONS"):
            self.environment.setdefault(sanitizer, "allocator_may_return_null=1")
        self.scenarios = scenarios_of(self.program, self.environment, arguments.only, arguments.collectives)
        self.base = {}
        self.names = {}  # names of the calls, by scenario and number
        self.tried = 0
        self.calls_failed = set()
        self.never_came = 0
        self.failures = []

    def start(self, scenario, fault=None):
        """Returns the exit status (a text after a timeout), the output, and the stand-in's report."""
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report")
            environment = self.environment | self.scenarios[scenario] | {"STANDIN_REPORT": report}
            if fault is not None:
                environment |= self.setting_of(fault)
            try:
                done = subprocess.run([self.program, scenario], capture_output=True, text=True, errors="replace", env=environment,
                                      timeout=self.limit)
                status, output = done.returncode, done.stdout + done.stderr
            except subprocess.TimeoutExpired as expired:
                status, output = f"no end within {self.limit} s", (expired.stdout or b"").decode(errors="replace")
            lines = []
            if os.path.exists(report):
                with open(report, encoding="utf-8") as text:
                    lines = text.read().splitlines()
            return status, output, self.complete(json.loads(lines[-1]), output) if lines else None

    def setting_of(self, fault):
        return {"STANDIN_FAULT": f"call={fault.call};form={fault.form};code={fault.code}"}

    def complete(self, report, _output):
        return report

    def faults_of(self, scenario, forms):
        """Each place of a fault, with the forms that it has; the first form is tried first."""
        return [(call, forms) for call in range(1, self.base[scenario]["calls"] + 1)]

    def baseline(self):
        for scenario in self.scenarios:
            status, output, report = self.start(scenario)
            if status == 77:
                print(output.strip())
                sys.exit(77)
            wrong = [f"exit status {status}"] if status != 0 else []
            if report is None:
                wrong.append("no report of the stand-in: is it in the loader's path?")
            else:
                wrong += [f"{report[kind]} times {kind}" for kind in MISUSE if report[kind]]
                wrong += [f"{report['live_device']} device blocks left"] if report["live_device"] else []
            if wrong:
                print(f"{scenario} without a fault: {', '.join(wrong)}\n{output}")
                sys.exit(1)
            self.base[scenario] = report

    def judge(self, run, status, output, report):
        wrong = []
        if status != 0:
            wrong.append(f"exit status {status}")
        if report is None:
            return wrong + ["no report of the stand-in"]
        base = self.base[run.scenario]
        if report["faulted"]:
            self.names[run.scenario, run.call] = report["fault_call"]
            self.calls_failed.add((run.scenario, run.call, run.form in ("query", "operation") and run.form))
        else:
            self.never_came += 1  # the number of calls varies a little, because of polling
        # Once no call works any more, a program cannot free a stream's memory after the work of another stream. overlap() cannot either, so
        # it must not free its memory.
        unknowable = {"use_after_free"} if run.form == "sticky" and not run.scenario.startswith("overlap") else set()
        # A free that returns an error of a capture was refused, so the library frees again: such an error is never one of earlier work.
        if run.form == "executed" and 900 <= run.code <= 908 and report["fault_call"].endswith("FreeAsync"):
            unknowable = {"double_free"}
        wrong += [f"{report[kind]} times {kind}" for kind in MISUSE if report[kind] and kind not in unknowable]
        # As checker.cpp: without a context (201) nothing is destroyed.
        refused_release = (run.form == "refused" or run.code == 201) and any(word in report["fault_call"] for word in ("Destroy", "Free"))
        allowed = 1 if refused_release or "stays with its caller" in output else 0
        # After an error of a capture the library waits for no device any more: it leaks a block if it cannot know when its streams are done.
        blocks = 1 if 900 <= run.code <= 908 else allowed
        for kind, more in (("live_streams", allowed), ("live_device", blocks), ("live_pinned", allowed + PINNED_KEPT)):
            if run.form == "sticky" and (kind != "live_streams" or run.code == 201):
                continue  # the library can no longer query which streams use the memory; without a context nothing is destroyed
            # The number of streams that the library makes for itself depends on timing. The scenario prints the maximum.
            kept = re.search(r"keeps (\d+) streams", output) if kind == "live_streams" else None
            if report[kind] > max(base[kind], int(kept[1]) if kept else 0) + more:
                wrong.append(f"{report[kind]} {kind}, without a fault {base[kind]}")
        return wrong

    def do(self, run):
        status, output, report = self.start(run.scenario, run)
        wrong = self.judge(run, status, output, report)
        self.tried += 1
        if wrong:
            name = report["fault_call"] if report else "?"
            self.failures.append((run, name, wrong, output))

    def all(self, runs, deadline):
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            waiting = set()
            for run in runs:
                if deadline is not None and time.monotonic() > deadline:
                    break
                if len(waiting) >= 4 * os.cpu_count():
                    finished, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in finished:
                        future.result()
                waiting.add(pool.submit(self.do, run))
            for future in waiting:
                future.result()

    def plan(self, codes, forms, seed):
        """Returns two lists: first every call once, refused, with varying codes; then all other runs, in an order that depends on the seed."""
        shuffled = random.Random(seed)
        faults = [(scenario, *fault) for scenario in self.scenarios for fault in self.faults_of(scenario, forms)]
        turn = itertools.cycle(shuffled.sample(codes, len(codes)))
        first = [Run(scenario, call, its_forms[0], next(turn)) for scenario, call, its_forms in faults]
        rest = sorted({Run(scenario, call, form, code) for scenario, call, its_forms in faults for form in its_forms for code in codes} - set(first))
        shuffled.shuffle(rest)
        return first, rest

    def queries(self, forms):
        asking = sorted(call for call, name in self.names.items() if name.endswith(("Query", "ElapsedTime")))
        return [Run(*call, form, NOT_READY) for call in asking for form in forms if form != "sticky"]


class CclSweep(Sweep):
    """Of the library of collective operations. Its report is what the scenario prints."""

    def setting_of(self, fault):
        if fault.form in ("query", "operation"):
            return {"STANDIN_CCL_FAULT": f"{fault.form}={fault.call};code={fault.code}"}
        return {"STANDIN_CCL_FAULT": f"call={fault.call};code={fault.code};form={fault.form}"}

    def complete(self, report, output):
        found = re.search(r"(\d+) calls, (\d+) queries and (\d+) operations of collectives.*fault in (.*?) \(", output)
        calls, queries, operations, name = found.groups() if found else (0, 0, 0, "?")
        numbers = {"calls": int(calls), "query": min(int(queries), MOST_QUERIES), "operation": int(operations)}
        return report | numbers | {"faulted": name != "none", "fault_call": name}

    def plan(self, codes, forms, seed):
        return ([run._replace(code=6) if run.form == "operation" and run.code == IN_PROGRESS else run for run in runs]
                for runs in super().plan(codes, forms, seed))

    def faults_of(self, scenario, forms):
        base = self.base[scenario]
        of_calls = [form for form in forms if form in ("refused", "executed")]
        found = super().faults_of(scenario, of_calls) if of_calls else []
        return found + [(number, [form]) for form in forms if form not in of_calls for number in range(1, base[form] + 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", required=True, help="the program sweep_scenarios")
    parser.add_argument("--standin", required=True, help="the stand-in library")
    parser.add_argument("--bounded", type=float, metavar="SECONDS", help="fail every call once, then continue until this time is over; default: all runs")
    parser.add_argument("--scheduler", default="eager")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=20, help="time limit of one run, in seconds")
    parser.add_argument("--only", nargs="*", help="only these scenarios")
    parser.add_argument("--collectives", action="store_true", help="fail calls of the library of collective operations")
    parser.add_argument("--forms", nargs="*", choices=sorted({*FORMS, *CCL_FORMS}))
    parser.add_argument("--codes", nargs="*", type=int)
    parser.add_argument("--show", type=int, default=20, help="how many failures to show in full")
    arguments = parser.parse_args()

    arguments.forms = arguments.forms or (CCL_FORMS if arguments.collectives else FORMS)
    arguments.codes = arguments.codes or (CCL_CODES if arguments.collectives else CODES)

    start = time.monotonic()
    deadline = start + arguments.bounded if arguments.bounded else None
    sweep = (CclSweep if arguments.collectives else Sweep)(arguments)
    sweep.baseline()
    first, rest = sweep.plan(arguments.codes, arguments.forms, arguments.seed)
    planned = len(first) + len(rest)
    sweep.all(first, None)
    not_ready = [] if arguments.collectives else sweep.queries(arguments.forms)
    sweep.all(not_ready + rest, deadline)

    calls = len(first)
    by_call = collections.Counter((name, run.form, ", ".join(wrong)) for run, name, wrong, _ in sweep.failures)
    for run, name, wrong, output in sweep.failures[:arguments.show]:
        print(f"FAILED {run.scenario}, call {run.call} ({name}), {run.form}, {run.code}: {', '.join(wrong)}")
        print("    " + "\n    ".join(output.strip().splitlines()[-6:]))
    if len(sweep.failures) > arguments.show:
        for (name, form, wrong), count in by_call.most_common(40):
            print(f"{count:6d} times: {name}, {form}: {wrong}")
    print(f"{len(sweep.scenarios)} scenarios, {calls} calls ({len(sweep.calls_failed)} of them failed, each at least once) x "
          f"{len(arguments.forms)} forms x {len(arguments.codes) + (1 if not_ready else 0)} codes: {sweep.tried} of "
          f"{planned + len(not_ready)} runs in {time.monotonic() - start:.0f} s, scheduler {arguments.scheduler}, seed {arguments.seed}; "
          f"in {sweep.never_came} the call did not happen; {len(sweep.failures)} failed")
    sys.exit(1 if sweep.failures else 0)


if __name__ == "__main__":
    main()
