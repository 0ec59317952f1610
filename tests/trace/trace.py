# SPDX-License-Identifier: Apache-2.0
"""The files of RUNNEL_TRACE and of Trace. Arguments: the program, and the `runnel` command if there is one."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

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


def slices(events, name, on_device):
    found = [e for e in events if e.get('name') == name and e['ph'] == 'X' and (e['pid'] > 1) == on_device]
    return sorted(found, key=lambda e: e['ts'])


def check_work(events, rounds=1):
    names = {(e['pid'], e['tid']): e['args']['name'] for e in events if e['ph'] == 'M' and e['name'] == 'thread_name'}
    expect(any(name.startswith('up "quoted" (stream ') for name in names.values()), 'a stream has its name')
    expect({e['args']['name'] for e in events if e['ph'] == 'M' and e['name'] == 'process_name'} >= {'host', 'device 0'}, 'host and device')
    copies = slices(events, 'copy', True)
    expect(len(copies) == 3 * rounds and all(e['args']['bytes'] == 4 << 20 for e in copies), f'{len(copies)} copies on streams')
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


with tempfile.TemporaryDirectory(prefix='runnel-trace-') as folder:
    file = os.path.join(folder, 'a.json')
    silent(run(PROGRAM, 'work', RUNNEL_TRACE=file))
    check_work(load(file))

    silent(run(PROGRAM, 'work'))
    expect(os.listdir(folder) == ['a.json'], 'without the variable nothing is written')

    file = os.path.join(folder, 'fork.json')
    # LeakSanitizer looks for the parent's threads in the child, where they are not, and says so.
    silent(run(PROGRAM, 'fork', file, RUNNEL_TRACE=file, ASAN_OPTIONS=os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'))
    check_work(load(file))

    file = os.path.join(folder, 'write.json')
    silent(run(PROGRAM, 'write', file))
    check_work(load(file + '.first'))
    check_work(load(file), 2)

    silent(run(PROGRAM, 'busy', RUNNEL_TRACE=os.path.join(folder, 'busy-%p.json')))
    (busy,) = [name for name in os.listdir(folder) if name.startswith('busy-')]
    expect(busy[5:-5].isdigit(), '%p is the number of the process')
    expect([e for e in load(os.path.join(folder, busy)) if e.get('name') == 'copy' and e['ph'] == 'i'], 'work that runs on at exit has no end')

    done = run(PROGRAM, 'work', RUNNEL_TRACE=os.path.join(folder, 'missing', 'a.json'))
    expect(done.stderr.count('\n') == 1 and 'cannot be written' in done.stderr and done.stdout == '', 'an unwritable file is said once')

    if len(sys.argv) > 2:
        file = os.path.join(folder, 'tool.json')
        run(sys.argv[2], 'overlap', '--table', 'upper', '/etc/passwd', os.path.join(folder, 'out'), RUNNEL_TRACE=file)
        expect(slices(load(file), 'copy', True), 'a trace of the command')
