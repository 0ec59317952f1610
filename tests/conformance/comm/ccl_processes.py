# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of ccl_process_cases.cpp over the stand-in libraries, and compares what all processes print. Prints TAP.

usage: ccl_processes.py PROGRAM LIBRARY-PATH [TIMES]
       ccl_processes.py PROGRAM --gpu [TIMES]           the cases that need no stand-in, with a GPU for each of two processes"""
import os
import subprocess
import sys

program, library_path, times = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1
launch = os.path.join(os.path.dirname(__file__), 'launch.py')
LIMIT_S = 40
REFUSED = 'runnel: could not make a communicator: '
BROKEN = 'runnel: could not run all_reduce: '
FORKED = [f'runnel: could not {what}: this process was forked from one that had used the runtime; use exec, or fork before first use'
          for what in ('run all_reduce', 'split a communicator', 'check a communicator', 'make a communicator')]

ON_ONE = {'STANDIN_CCL_FAULT_RANK': '1'}
LATE = REFUSED + 'another process did not take part within the timeout of 1000 ms'
LOST = 'runnel: could not run an operation: remote process exited'
ON_GPU = library_path == '--gpu'
# The timeout of `die`, in seconds. On GPUs it covers the start of NCCL, too.
TIMEOUT = '5' if ON_GPU else '1'

# Name, processes, settings of the stand-in, and what all processes print; None: each prints some error.
CASES = [
    ('die', 2, {}, ['an error in time']),
    ('die', 3, {'STANDIN_CCL_ABORT_HANGS': '1'}, 2 * ['an error in time']),
    ('just_return', 2, {}, 2 * ['done']),
    ('just_return', 2, {'STANDIN_CCL_DESTROY_WAITS': '1'}, 2 * ['done']),
    ('destroy', 2, {}, 2 * ['at once']),
    ('destroy', 2, {'STANDIN_CCL_DESTROY_WAITS': '1', 'STANDIN_SCHEDULER': 'lazy'}, 2 * ['at once']),
    ('fork_in_use', 1, {}, FORKED + ['the child ended']),
    ('make', 1, {'STANDIN_CCL_FAULT': 'call=1;code=2'}, [REFUSED + 'unhandled system error']),
    ('make', 2, {'STANDIN_CCL_FAULT': 'call=1;code=2'}, 2 * [REFUSED + 'unhandled system error']),
    # Process 1 fails where the others wait for it.
    ('make_within_a_second', 2, ON_ONE | {'STANDIN_CCL_FAULT': 'call=1;code=2'}, [REFUSED + 'unhandled system error', LATE]),
    ('make_within_a_second', 3, ON_ONE | {'STANDIN_CCL_FAULT': 'call=1;code=2'}, [REFUSED + 'unhandled system error', LATE, LATE]),
    ('make_within_a_second', 2, {}, 2 * ['no error']),
    ('make_with_the_longest_timeout', 2, {}, 2 * ['no error']),
    ('make', 1, {'STANDIN_DEVICES': '0'}, None),
    # The vendor's own library, without a driver.
    ('make', 2, {'LD_LIBRARY_PATH': library_path.rpartition(':')[2]}, None),
    ('reduce', 1, {'STANDIN_CCL_FAULT': 'call=5;code=4'}, 2 * [BROKEN + 'invalid argument']),
    ('reduce_with_timeout', 1, {'STANDIN_CCL_FAULT': 'operation=3;code=6'}, 2 * [LOST]),
    # One of two processes meets it; the other one is told, although its timeout is longer than the limit here.
    ('reduce_with_timeout', 2, ON_ONE | {'STANDIN_CCL_FAULT': 'call=3;code=4'}, 2 * [BROKEN + 'invalid argument'] + 2 * [LOST]),
    ('reduce_with_timeout', 2, ON_ONE | {'STANDIN_CCL_FAULT': 'call=3;code=4;form=executed'}, 2 * [BROKEN + 'invalid argument'] + 2 * [LOST]),
    ('reduce_with_timeout', 2, ON_ONE | {'STANDIN_CCL_FAULT': 'operation=2;code=3'}, 2 * ['runnel: could not run an operation: internal error'] + 2 * [LOST]),
]
if ON_GPU:
    ALONE = ('die', 'just_return', 'destroy', 'fork_in_use', 'make_with_the_longest_timeout')
    CASES = [case for case in CASES if case[0] in ALONE and case[1] <= 2 and not case[2]]


def fault_of(name, processes, settings, expected):
    environment = dict(os.environ) if ON_GPU else os.environ | {'LD_LIBRARY_PATH': library_path, 'RUNNEL_STANDIN': '1'} | settings
    try:
        done = subprocess.run([sys.executable, launch, '-n', str(processes), '--limit', str(LIMIT_S), program, name, TIMEOUT], capture_output=True,
                              text=True, timeout=2 * LIMIT_S, env=environment)
    except subprocess.TimeoutExpired:
        return f'it still ran after {2 * LIMIT_S} s'
    lines = sorted(done.stdout.splitlines())
    ended = done.returncode == (9 if name == 'die' else 0) and not done.stderr
    if ended and (lines == sorted(expected) if expected is not None else len(lines) == processes and lines[0].startswith(('runnel: could not make', 'runnel: could not ask'))):
        return None
    return f'it returned {done.returncode}:\n{done.stdout}{done.stderr}'


print(f'1..{len(CASES)}')
failed = 0
for number, (name, processes, settings, expected) in enumerate(CASES, 1):
    faults = [fault for _ in range(times) if (fault := fault_of(name, processes, settings, expected))]
    failed += len(faults)
    title = ' '.join([name.replace('_', ' '), f'{processes} processes', *(f'{key} {value}' for key, value in settings.items())])
    print(f'{"not ok" if faults else "ok"} {number} - {title}, {times - len(faults)} of {times}', flush=True)
    for line in '\n'.join(faults[:1]).splitlines():
        print('# ' + line)
sys.exit(1 if failed else 0)
