# SPDX-License-Identifier: Apache-2.0
"""Runs random programs in many settings: on the host backend, on a GPU, or on a stand-in in each order of execution and with 0 to 8 channels.

    run.py --program random_programs [--gpu [--devices 2] | --standin libcudart.so.13] [--count 20000] [--seed 1] [--jobs 2]
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time

# Environment, arguments, and how many of 100 programs run so. Copies of several MiB are run in few settings.
ON_HOST = [
    ({}, [], 32),
    ({}, ['--rows', '--small'], 3),
    ({'RUNNEL_CHECK': '1'}, ['--small'], 5),
    ({'RUNNEL_HOST_DEVICES': '2'}, ['--devices', '2', '--small'], 30),
    ({'RUNNEL_HOST_MEMORY': '64M'}, ['--small'], 9),
    ({'RUNNEL_HOST_MEMORY': '16M'}, ['--staged', '--operations', '16'], 1),
    ({}, ['--operations', '60', '--threads', '4', '--small'], 20),
]
ON_GPU = [
    ({}, [], 40),
    ({}, ['--rows'], 10),
    ({'RUNNEL_CHECK': '1'}, ['--small'], 10),
    ({}, ['--operations', '60', '--threads', '4', '--small'], 40),
]
ON_TWO_GPUS = [
    ({}, ['--devices', '2', '--small'], 50),
    ({}, ['--devices', '2', '--rows'], 10),
    ({'RUNNEL_CHECK': '1'}, ['--devices', '2', '--small'], 10),
    ({}, ['--devices', '2', '--small', '--operations', '60', '--threads', '4'], 30),
]
ON_STANDIN = [
    ({'STANDIN_SCHEDULER': 'eager'}, [], 9),
    ({'STANDIN_SCHEDULER': 'eager', 'RUNNEL_STAGING_CHUNK': '512K'}, ['--rows'], 2),
    ({'STANDIN_SCHEDULER': 'random'}, ['--rows', '--small'], 3),
    ({'STANDIN_SCHEDULER': 'reverse', 'STANDIN_CHANNELS': '2'}, ['--rows', '--small'], 2),
    ({'STANDIN_SCHEDULER': 'lazy', 'STANDIN_PATIENCE_MS': '5', 'RUNNEL_STAGING_MEMORY': '8M'}, ['--rows', '--small'], 2),
    ({'STANDIN_SCHEDULER': 'random', 'STANDIN_DEVICES': '2'}, ['--devices', '2', '--rows', '--small'], 1),
    ({'STANDIN_SCHEDULER': 'random', 'RUNNEL_CHECK': '1'}, ['--small'], 3),
    ({'STANDIN_SCHEDULER': 'eager', 'STANDIN_CHANNELS': '1'}, ['--small'], 8),
    ({'STANDIN_SCHEDULER': 'eager', 'STANDIN_DEVICES': '2'}, ['--devices', '2', '--small'], 8),
    ({'STANDIN_SCHEDULER': 'lazy', 'STANDIN_PATIENCE_MS': '5'}, ['--small'], 13),
    ({'STANDIN_SCHEDULER': 'lazy', 'STANDIN_PATIENCE_MS': '5', 'STANDIN_CHANNELS': '8'}, ['--small'], 5),
    ({'STANDIN_SCHEDULER': 'reverse'}, ['--small'], 9),
    ({'STANDIN_SCHEDULER': 'reverse', 'STANDIN_CHANNELS': '4'}, ['--small'], 5),
    ({'STANDIN_SCHEDULER': 'random'}, ['--small'], 10),
    ({'STANDIN_SCHEDULER': 'random', 'STANDIN_CHANNELS': '2'}, ['--small'], 5),
    ({'STANDIN_SCHEDULER': 'random', 'STANDIN_DEVICES': '2'}, ['--devices', '2', '--small'], 5),
    ({'STANDIN_SCHEDULER': 'random', 'STANDIN_MEMORY_MIB': '64', 'RUNNEL_STAGING_MEMORY': '16M'}, ['--small'], 5),
    ({'STANDIN_SCHEDULER': 'random', 'STANDIN_HOST_FUNCTIONS': '1'}, ['--small'], 4),
    ({'STANDIN_SCHEDULER': 'eager', 'RUNNEL_STAGING_CHUNK': '512K'}, ['--staged', '--operations', '16'], 1),
]


def run(options, settings, arguments, seed, count):
    environment = dict(os.environ, **settings)
    if options.standin:
        environment.update(LD_LIBRARY_PATH=str(options.standin.parent), RUNNEL_STANDIN='1')
    command = [options.program, '--seed', str(seed), '--count', str(count), '--shrink', '--repeats', '3', *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    name = ' '.join([f'{key}={value}' for key, value in settings.items()] + arguments) or 'no settings'
    summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f'status {done.returncode}'
    print(f'{name}: {summary}' + (f'\n{done.stdout}' if done.returncode else ''), flush=True)
    return done.returncode == 0


def settings_of(options):
    if options.standin:
        return ON_STANDIN
    return ON_HOST if not options.gpu else ON_TWO_GPUS if options.devices == 2 else ON_GPU


def pieces(options):
    """At most 20,000 programs of one setting at a time, so that all jobs have work until the end."""
    seed = options.seed
    for settings, arguments, percent in settings_of(options):
        left = options.count * percent // 100
        while left > 0:
            count = min(left, 20000)
            yield settings, arguments, seed, count
            seed += count
            left -= count


parser = argparse.ArgumentParser()
parser.add_argument('--program', type=pathlib.Path, required=True)
parser.add_argument('--gpu', action='store_true')
parser.add_argument('--devices', type=int, default=1, choices=(1, 2), help='with --gpu: how many GPUs the programs use')
parser.add_argument('--standin', type=pathlib.Path)
parser.add_argument('--count', type=int, default=20000)
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--jobs', type=int, default=os.cpu_count())
options = parser.parse_args()
start = time.monotonic()
with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    results = list(pool.map(lambda piece: run(options, *piece), pieces(options)))
print(f'{options.count} programs, {results.count(False)} of {len(results)} runs failed, {time.monotonic() - start:.0f} s')
sys.exit(0 if all(results) else 1)
