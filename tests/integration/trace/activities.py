# SPDX-License-Identifier: Apache-2.0
"""What CUPTI's records add to a trace. Arguments: the program, and the folder of CUPTI's stand-in (cupti.cpp)."""
import os
import pathlib
import sys
import tempfile

from traces import PROGRAM, about, check_work, expect, is_timed_work, load, row_names, run, silent

CUPTI = sys.argv[2] + ':' + os.environ['LD_LIBRARY_PATH']
KEY = 'work on the device'


def trace(folder, what, name, libraries=CUPTI, cupti='', **environment):
    """The events of the trace, and what the file says of itself."""
    file = os.path.join(folder, name)
    arguments = [file] if what in ('write', 'fork', 'threads') else []
    if what not in ('write', 'threads'):
        environment['RUNNEL_TRACE'] = file
    silent(run(PROGRAM, what, *arguments, LD_LIBRARY_PATH=libraries, CUPTI_STANDIN=cupti, **environment))
    return load(file), about(file)


def work_of(events):
    return [e for e in events if is_timed_work(e)]


def shown(events):
    """The rows and the names of the timed work, in order."""
    names = row_names(events)
    return [(e['pid'] - 2, names[e['pid'], e['tid']], e['name']) for e in sorted(work_of(events), key=lambda e: (e['pid'], e['ts']))]


def without_numbers(text):
    return ''.join(c for c in text if not c.isdigit())


def check_kernels(events, devices):
    found = [(device, without_numbers(row), name) for device, row, name in shown(events)]
    expected = []
    for device in range(devices):
        expected += [(device, 'up (stream ), on the device', name) for name in ('scale(float*, int)', 'fill', 'plain', 'in_graph')]
        expected += [(device, 'stream , on the device', name) for name in ('fill', 'in_default', 'fill', 'in_own_default')]
        expected.append((device, 'another stream (), on the device', 'of_others'))
    expect(found == expected, f'kernels and fills in their rows: {found}')
    rows = {name for _, name, _ in shown(events)}
    expect(len(rows) == 4 * devices, f'each stream has a row of its own: {sorted(rows)}')
    fills = [e for e in work_of(events) if e['name'] == 'fill']
    expect(all(e['args'] == {'bytes': 4 << 20} and e['cat'] == 'fill on the device' for e in fills), 'fills have their bytes')
    check_clock(events)


def check_clock(events):
    """All work lies between the program's first call and its last."""
    calls = [e for e in events if e['pid'] == 1 and e['ph'] == 'X']
    first, last = min(e['ts'] for e in calls), max(e['ts'] + e['dur'] for e in calls)
    slack = 2000  # microseconds: between two readings of the clocks on a busy machine
    expect(all(first - slack <= e['ts'] and e['ts'] + e['dur'] <= last + slack and e['dur'] >= 0 for e in work_of(events)),
           'the work has the times of the host')
    kernels = [e for e in work_of(events) if e['cat'] == 'kernel on the device']
    expect(all(e['dur'] >= 50 for e in kernels), 'kernels took their time')


def check_copies(events, rounds=1):
    """Of work(): two copies up, one down; one fill, and one in a graph. Staged copies consist of several."""
    check_work(events, rounds)
    for name, count, size in (('copy', 3, 4 << 20), ('fill', 2, 4 << 20)):
        sizes = [e['args']['bytes'] for e in work_of(events) if e['name'] == name]
        expect(sum(sizes) == count * size * rounds, f'{len(sizes)} records of "{name}" have all bytes')
    check_clock(events)


def check_refusals(folder):
    for cupti, reason in (('refuse_subscribe=39', 'CUPTI refuses: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)'),
                          ('refuse_enable=35', 'CUPTI refuses: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)')):
        events, text = trace(folder, 'work', 'refused.json', cupti=cupti)
        check_work(events)
        expect(not work_of(events) and text[KEY] == 'not timed: ' + reason, text[KEY])
    events, text = trace(folder, 'work', 'off.json', RUNNEL_TRACE_CUPTI='0')
    check_work(events)
    expect(not work_of(events) and text[KEY] == 'not timed: RUNNEL_TRACE_CUPTI=0', text[KEY])

    broken = pathlib.Path(folder, 'broken')
    broken.mkdir()
    (name,) = [path.name for path in pathlib.Path(sys.argv[2]).glob('libcupti.so.*') if path.is_file()]
    (broken / name).write_text('this is no library')
    events, text = trace(folder, 'work', 'broken.json', libraries=f'{broken}:{os.environ["LD_LIBRARY_PATH"]}')
    check_work(events)
    expect(not work_of(events) and text[KEY].startswith('not timed: ') and name in text[KEY], text[KEY])


with tempfile.TemporaryDirectory(prefix='runnel-activities-') as folder:
    for devices in (1, 2):
        events, text = trace(folder, 'kernels', 'kernels.json', STANDIN_DEVICES=str(devices))
        check_kernels(events, devices)
        expect(text[KEY].startswith('timed by CUPTI, API version 13') and text['events left out'] == 0, text[KEY])
    for cupti in ('records=1', 'records=2', 'records=4 incomplete=1', 'incomplete=1'):
        events, text = trace(folder, 'kernels', 'pieces.json', cupti=cupti)
        check_kernels(events, 1)
        expect(text['events left out'] == 0, f'nothing is lost with {cupti}')
    for cupti in ('drop=3', 'untimed=3', 'records=2 drop=3'):
        events, text = trace(folder, 'kernels', 'dropped.json', cupti=cupti)
        expect(len(work_of(events)) == 6 and text['events left out'] == 3, f'{cupti}: a third is lost, and counted')

    for scheduler in ('eager', 'lazy', 'random'):
        check_copies(trace(folder, 'work', 'work.json', STANDIN_SCHEDULER=scheduler)[0])
    check_copies(trace(folder, 'fork', 'fork.json', ASAN_OPTIONS=os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0')[0])
    events, _ = trace(folder, 'write', 'write.json')
    check_copies(load(os.path.join(folder, 'write.json.first')))
    check_copies(events, 2)
    events, text = trace(folder, 'threads', 'threads.json')
    fills = [e for e in work_of(events) if e['name'] == 'fill']
    expect(len(fills) == 200 and text['events left out'] == 0, f'{len(fills)} fills of threads')
    trace(folder, 'busy', 'busy.json')
    check_refusals(folder)
