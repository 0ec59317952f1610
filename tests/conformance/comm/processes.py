# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of process_cases.cpp in two processes, and compares what each process prints. Prints TAP.

usage: processes.py PROGRAM MPIRUN [TIMES]"""
import os
import subprocess
import sys
import time

program, mpirun, times = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1
LIMIT_S = 60

CASES = {
    'without_mpi': ['runnel: could not find the processes of MPI: MPI is not initialised: call MPI_Init_thread() first'],
    'too_few_threads': ['runnel: could not make a communicator: MPI was initialised with MPI_THREAD_SERIALIZED: initialise it with '
                        'MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...), because streams call it from their threads'],
    'after_the_end': ['runnel: could not run all_reduce: MPI is finalized', 'runnel: could not split a communicator: MPI is finalized',
                      'runnel: could not find the processes of MPI: MPI is finalized'],
    'end_while_busy': ['the sums are right'],
    'end_while_busy_alone': ['the sums are right'],
    'just_return': ['done'],
    'die': None,  # mpirun ends the others
}


def fault_of(name, expected):
    begin = time.monotonic()
    try:
        done = subprocess.run([mpirun, '-n', '2', program, name], capture_output=True, text=True, timeout=LIMIT_S, env=os.environ)
    except subprocess.TimeoutExpired:
        return f'it still ran after {LIMIT_S} s'
    if expected is None:
        ended = done.returncode != 0 and 'not reached' not in done.stdout and time.monotonic() - begin < 20
        return None if ended else f'it returned {done.returncode} after {time.monotonic() - begin:.1f} s:\n{done.stdout}{done.stderr}'
    lines = sorted(done.stdout.splitlines())
    if done.returncode == 0 and lines == sorted(2 * expected):
        return None
    return f'it returned {done.returncode}:\n{done.stdout}{done.stderr}'


print(f'1..{len(CASES)}')
failed = 0
for number, (name, expected) in enumerate(CASES.items(), 1):
    faults = [fault for _ in range(times) if (fault := fault_of(name, expected))]
    failed += len(faults)
    print(f'{"not ok" if faults else "ok"} {number} - {name.replace("_", " ")}, {times - len(faults)} of {times}', flush=True)
    for line in '\n'.join(faults[:1]).splitlines():
        print('# ' + line)
sys.exit(1 if failed else 0)
