#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a program as several processes, as torchrun would, and returns the first failure's code. Once one process has failed, the others have
some seconds to end by themselves.

usage: launch.py -n COUNT [--limit SECONDS] PROGRAM [ARGUMENT...]"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

GRACE_S = 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('-n', type=int, required=True)
    parser.add_argument('--limit', type=float, default=250)
    parser.add_argument('command', nargs=argparse.REMAINDER)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(given.n):
            place = {'RANK': str(rank), 'WORLD_SIZE': str(given.n), 'LOCAL_RANK': str(rank), 'RUNNEL_WORLD_FILE': os.path.join(folder, 'world')}
            processes.append(subprocess.Popen(given.command, env=os.environ | place))
        sys.exit(wait_for(processes, time.monotonic() + given.limit))


def wait_for(processes, end):
    code = 0
    while any(process.poll() is None for process in processes):
        time.sleep(0.01)
        failed = [process.returncode for process in processes if process.returncode]
        if failed and code == 0:
            code = abs(failed[0])
            end = min(end, time.monotonic() + GRACE_S)
        if time.monotonic() > end:
            print('launch.py: the processes did not end', file=sys.stderr)
            for process in processes:
                process.kill()
            code = code or 1
    return code or next((abs(process.returncode) for process in processes if process.returncode), 0)


if __name__ == '__main__':
    main()
