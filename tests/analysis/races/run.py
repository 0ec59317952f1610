# SPDX-License-Identifier: Apache-2.0
"""Runs each case of tests/analysis/races, and compares what ThreadSanitizer says with what the source says about the case. Prints TAP.

usage: run.py PROGRAM [TIMES [CASE...]]

A case with a race must be reported each time, and each report must name the two lines, one in each of its two stacks. To look up the lines
takes most of the time, so only the first runs of a case do it. A case without a race must run to its end without a report."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 120
RUNS_WITH_LINES = 3
CASE = re.compile(r'^void (\w+)\(\) \{  // (race|no race)$')
MARK = re.compile(r'//\s*(one|other|both)$')
ACCESS = re.compile(r'^  (?:Previous )?(?:atomic )?(?:read|write) of size ', re.IGNORECASE)
FRAME = re.compile(r'^    #\d+ .*?([\w.-]+):(\d+)')
# A kernel that spreads addresses widely is more than this sanitizer of g++ 12 and clang 14 can map.
SETARCH = [shutil.which('setarch') or '', os.uname().machine, '-R']


class Case:
    def __init__(self, name, has_race):
        self.name, self.has_race, self.marks = name, has_race, {}

    def expected(self):
        one = self.marks.get('one', self.marks.get('both'))
        return one, self.marks.get('other', one)


def cases_of(path):
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if begin := CASE.match(line):
            found.append(Case(begin.group(1), begin.group(2) == 'race'))
        elif found and (mark := MARK.search(line)):
            found[-1].marks[mark.group(1)] = (path.name, number)
    return found


def stacks_of(report):
    """The places in the stacks of the two accesses."""
    stacks, inside = [], False
    for line in report.splitlines():
        if ACCESS.match(line):
            stacks.append(set())
            inside = True
        elif not line.strip():
            inside = False
        elif inside and (frame := FRAME.match(line)):
            stacks[-1].add((frame.group(1), int(frame.group(2))))
    return stacks


def names_both(report, one, other):
    stacks = stacks_of(report)
    return len(stacks) == 2 and any(one in a and other in b for a, b in (stacks, stacks[::-1]))


def what_is_wrong(case, program, with_lines):
    options = {'TSAN_OPTIONS': f'halt_on_error=0:atexit_sleep_ms=0:exitcode=66:symbolize={int(with_lines)}'}
    try:
        done = subprocess.run([*UNDER, program, case.name], capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, **options})
    except subprocess.TimeoutExpired:
        return f'it still ran after {LIMIT_S} s'
    text = done.stdout + done.stderr
    reports = text.split('WARNING: ThreadSanitizer: ')[1:]
    if done.stdout != 'done\n' or done.returncode != (66 if reports else 0):
        return f'it ended with {done.returncode}:\n{text}'
    if not case.has_race:
        return f'a false alarm:\n{text}' if reports else None
    if not reports:
        return 'the race was not found'
    wrong = [report for report in reports if with_lines and not names_both(report, *case.expected())]
    return f'a report does not name the lines {case.expected()}:\n{wrong[0]}' if wrong else None


def can_fix_addresses():
    return SETARCH[0] and subprocess.run([*SETARCH, 'true'], stderr=subprocess.DEVNULL).returncode == 0


UNDER = SETARCH if can_fix_addresses() else []


def main():
    program = sys.argv[1]
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    wanted = sys.argv[3:]
    cases = [case for path in sorted(HERE.glob('*.cpp')) for case in cases_of(path) if not wanted or case.name in wanted]
    print(f'1..{len(cases)}')
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = [[pool.submit(what_is_wrong, case, program, run < RUNS_WITH_LINES) for run in range(times)] for case in cases]
        for number, (case, runs) in enumerate(zip(cases, results), 1):
            faults = [fault for run in runs if (fault := run.result())]
            failed += len(faults)
            print(f'{"not ok" if faults else "ok"} {number} - {case.name}: {"race" if case.has_race else "no race"}, '
                  f'{times - len(faults)} of {times} right', flush=True)
            for line in '\n'.join(faults[:1]).splitlines():
                print('# ' + line)
    races = sum(case.has_race for case in cases)
    print(f'# {races} cases with a race, {len(cases) - races} without, {times} times each: {failed} wrong')
    sys.exit(1 if failed else 0)


main()
