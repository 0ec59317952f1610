#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job beside tr: a file of random bytes, in the page cache, is changed by `tr` and by `runnel overlap` in turns. Each run is timed
as a whole process and writes a new file.

    benchmarks/beside_tr.py build/tools/runnel [--folder FOLDER] [--mebibytes 512] [--turns 7] [OPTION OF RUNNEL OVERLAP ...]
"""
import argparse
import filecmp
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TABLES = {'upper': ('a-z', 'A-Z'), 'rot13': ('a-zA-Z', 'n-za-mN-ZA-M')}

parser = argparse.ArgumentParser(description='Times runnel overlap and tr on the same file, in turns.')
parser.add_argument('runnel')
parser.add_argument('--folder', help='where the files are; without it, where temporary files are')
parser.add_argument('--mebibytes', type=int, default=512)
parser.add_argument('--turns', type=int, default=7)
options, of_runnel = parser.parse_known_args()


def seconds(output, *command):
    output.unlink(missing_ok=True)
    start = time.monotonic()
    with open(source, 'rb') as standard_input, open(os.devnull if command[0] != 'tr' else output, 'wb') as standard_output:
        subprocess.run(command, stdin=standard_input, stdout=standard_output, env={**os.environ, 'LC_ALL': 'C'}, check=True)
    return time.monotonic() - start


with tempfile.TemporaryDirectory(prefix='runnel-beside-tr-', dir=options.folder) as folder:
    source, of_tr, of_ours = (pathlib.Path(folder) / name for name in ('in', 'tr', 'runnel'))
    with open(source, 'wb') as file:
        for _ in range(options.mebibytes):
            file.write(os.urandom(1 << 20))
    print(f'{options.mebibytes} MiB, medians of {options.turns} turns; {os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}')
    print(f'{"table":8} {"tr, s":>8} {"runnel, s":>10} {"GB/s":>6} {"times as fast":>14}')
    for table, sets in TABLES.items():
        theirs, ours = [], []
        for _ in range(options.turns):
            theirs.append(seconds(of_tr, 'tr', *sets))
            ours.append(seconds(of_ours, options.runnel, 'overlap', '--table', table, *of_runnel, source, of_ours))
        if not filecmp.cmp(of_tr, of_ours, shallow=False):
            sys.exit(f'the results of {table} differ')
        ratios = [a / b for a, b in zip(theirs, ours)]
        rate = options.mebibytes * (1 << 20) / 1e9 / statistics.median(ours)
        print(f'{table:8} {statistics.median(theirs):8.3f} {statistics.median(ours):10.3f} {rate:6.2f} {statistics.median(ratios):14.2f}'
              f'   ({min(ratios):.2f} to {max(ratios):.2f})')
    print(f'load at the end: {os.getloadavg()[0]:.2f}')
