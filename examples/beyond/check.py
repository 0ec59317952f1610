# SPDX-License-Identifier: Apache-2.0
"""Runs an example of several processes, and compares its result with Python's own.

usage: check.py histogram|sample_sort PROGRAM MPIRUN PROCESSES"""
import collections
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

what, program, mpirun, processes = sys.argv[1:]


def run(*arguments, fails=False):
    # As root, and with more processes than processors: both are what a container has.
    of_open_mpi = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_rmaps_base_oversubscribe': '1'}
    done = subprocess.run([mpirun, '-n', processes, program, *map(str, arguments)], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **of_open_mpi})
    if (done.returncode != 0) != fails:
        sys.exit(f'it returned {done.returncode}:\n{done.stdout}{done.stderr}')
    return done.stdout + done.stderr * fails


def check_histogram(folder):
    data = random.Random(1).randbytes(10_000_019) + b'a' * 5_000_000
    (folder / 'data').write_bytes(data)
    found = dict(map(int, line.split()) for line in run(folder / 'data').splitlines())
    return found == dict(collections.Counter(data))


def check_sample_sort(folder):
    for count in (0, 5, 300_000):
        numbers = [random.Random(count).getrandbits(64) for _ in range(count // 2)] + [7] * (count - count // 2)
        (folder / 'from').write_bytes(struct.pack(f'<{count}Q', *numbers))
        run(folder / 'from', folder / 'to')
        if (folder / 'to').read_bytes() != struct.pack(f'<{count}Q', *sorted(numbers)):
            return False
    return True


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    if not {'histogram': check_histogram, 'sample_sort': check_sample_sort}[what](folder):
        sys.exit('the result is another than Python\'s')
    wrong = [folder / 'missing'] * (1 if what == 'histogram' else 2)
    if 'missing' not in run(*wrong, fails=True):
        sys.exit('a file that is missing was not named')
