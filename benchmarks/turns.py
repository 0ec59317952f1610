#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench-calls of two builds in turns, on one processor, and prints the medians and their ratio for what both have.

usage: turns.py before/benchmarks/bench-calls after/benchmarks/bench-calls [turns]"""
import collections
import os
import statistics
import subprocess
import sys

before, after = sys.argv[1:3]
times = collections.defaultdict(lambda: collections.defaultdict(list))
for turn in range(int(sys.argv[3]) if len(sys.argv) > 3 else 9):
    for program in (before, after) if turn % 2 == 0 else (after, before):
        done = subprocess.run([program], check=True, capture_output=True, text=True, timeout=300,
                              preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}))
        for line in done.stdout.splitlines():
            name, _, time = line.partition('\t')
            times[name][program].append(float(time))
for name, of in times.items():
    if len(of) == 2 or before == after:
        first, second = statistics.median(of[before]), statistics.median(of[after])
        print(f'{name:32s} {first:9.2f} {second:9.2f}   {second / first:.3f}')
