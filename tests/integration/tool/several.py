# SPDX-License-Identifier: Apache-2.0
"""Runs the command as one process, or as several under mpirun, if the test has mpirun as its second argument."""
import os
import subprocess
import sys

import tool

MPIRUN = sys.argv[2] if len(sys.argv) > 2 else None
# As root, and with more processes than processors: both are what a container has.
OPEN_MPI = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_rmaps_base_oversubscribe': '1',
            'OMPI_MCA_mpi_yield_when_idle': '1'}
COUNTS = (0, 1, 2, 4) if MPIRUN else (0,)  # 0: without mpirun


def command(count, *arguments):
    return [MPIRUN, '-n', str(count), tool.RUNNEL, *map(str, arguments)] if count else [tool.RUNNEL, *map(str, arguments)]


def each_with(*rest):
    """The command of several processes, each with arguments of its own."""
    line = [MPIRUN]
    for arguments in rest:
        line += [':'] * (len(line) > 1) + ['-n', '1', tool.RUNNEL, *map(str, arguments)]
    return line


def start(line, **options):
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **OPEN_MPI}, **options)


def run(line, **options):
    return subprocess.run(line, capture_output=True, timeout=tool.LIMIT_S, env={**os.environ, **OPEN_MPI}, **options)


def expect_one_line(what, status, error, says, *, ends_with=1):
    """A launcher adds lines of its own; the command itself says one."""
    ours = [line.split('\r')[-1].removeprefix('\x1b[K') for line in error.decode().splitlines() if 'runnel: ' in line]
    tool.expect(status == ends_with and len(ours) == 1 and ours[0].startswith('runnel: ') and all(word in ours[0] for word in says),
                f'{what}: status {status}, {error.decode().strip() if len(ours) != 1 else ours[0]}')
