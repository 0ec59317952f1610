# SPDX-License-Identifier: Apache-2.0
"""What the tests of traces share. The first argument of a test is the program."""
import json
import os
import pathlib
import subprocess
import sys

PROGRAM = sys.argv[1]


def expect(condition, what):
    if not condition:
        sys.exit('FAILED: ' + what)
    print('ok: ' + what)


def run(*arguments, **environment):
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    expect(done.returncode == 0, f'{arguments[1:]} ends well {done.stderr}')
    return done


def silent(done):
    expect(done.stdout == '' and done.stderr == '', f'it says nothing {done.stdout}{done.stderr}')


def load(file):
    return json.loads(pathlib.Path(file).read_text())['traceEvents']


def about(file):
    """What the file says of itself."""
    return json.loads(pathlib.Path(file).read_text())['otherData']


def row_names(events):
    return {(e['pid'], e['tid']): e['args']['name'] for e in events if e['ph'] == 'M' and e['name'] == 'thread_name'}


def is_timed_work(event):
    """Whether the profiling library has timed it."""
    return event.get('cat', '').endswith(' on the device')


def slices(events, name, on_device):
    found = [e for e in events if e.get('name') == name and e['ph'] == 'X' and (e['pid'] > 1) == on_device and not is_timed_work(e)]
    return sorted(found, key=lambda e: e['ts'])


def check_work(events, rounds=1):
    names = row_names(events)
    expect(any(name.startswith('up "quoted" (stream ') for name in names.values()), 'a stream has its name')
    expect({e['args']['name'] for e in events if e['ph'] == 'M' and e['name'] == 'process_name'} >= {'host', 'device 0'}, 'host and device')
    copies = slices(events, 'copy', True)
    expect(len(copies) == 3 * rounds and all(e['args']['bytes'] == 4 << 20 for e in copies), f'{len(copies)} copies on streams')
    expect(all('stream' in e['args'] for e in copies), 'with the number of the stream')
    expect(len(slices(events, 'copy', False)) == 3 * rounds, 'and the calls')
    for name, times in (('fill memory', 1), ('my kernels', 1), ('launch a graph', 1), ('run a host function', 1)):
        expect(len(slices(events, name, True)) == times * rounds, f'{name} on its stream')
    for name in ('launch a host function', 'wait for a stream', 'allocate device memory', 'allocate pinned memory', 'launch a graph'):
        expect(slices(events, name, False), f'{name} on a thread')
    for name in ('create a stream', 'end a stream', 'make a stream wait for another'):
        expect(any(e.get('name') == name and e['ph'] == 'i' for e in events), f'{name} as a moment')
    ran = slices(events, 'run a host function', True)[0]
    expect(ran['dur'] >= 4900, 'the host function took its time')
    slack = 2000  # microseconds: between the clocks of host and device
    end = ran['ts'] + ran['dur']
    for step in (*copies[:2], slices(events, 'my kernels', True)[0], slices(events, 'launch a graph', True)[0], copies[2]):
        expect(step['dur'] >= 0 and step['ts'] >= end - slack, f'{step["name"]} comes after what was before it')
        end = step['ts'] + step['dur']
    kernels, fill = slices(events, 'my kernels', True)[0], slices(events, 'fill memory', True)[0]
    expect(kernels['ts'] <= fill['ts'] + slack and fill['ts'] + fill['dur'] <= kernels['ts'] + kernels['dur'] + slack, 'a range holds its work')
