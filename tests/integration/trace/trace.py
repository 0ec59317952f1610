# SPDX-License-Identifier: Apache-2.0
"""The files of RUNNEL_TRACE and of Trace. Arguments: the program, and the `runnel` command if there is one."""
import os
import shutil
import subprocess
import sys
import tempfile

from traces import PROGRAM, check_work, expect, load, run, silent, slices


def check_threads(events):
    """Of 4 threads with 25 rounds each."""
    expect(len(slices(events, 'of a thread', True)) == 100, 'each range of each thread is there once')
    calls = slices(events, 'fill memory', False)
    expect(len(calls) == 200, f'{len(calls)} calls of threads')
    by_thread = [sum(call['tid'] == each for call in calls) for each in {call['tid'] for call in calls}]
    expect(by_thread == [50] * 4, f'each thread has its calls: {by_thread}')
    expect(len(slices(events, 'fill memory', True)) == 200, 'and the streams have them')


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

    file = os.path.join(folder, 'again.json')
    done = run(PROGRAM, 'again', file)
    expect(done.stderr.count('cannot be written') == 1 and done.stdout == '', 'a file that cannot be written does not hinder the next')
    check_work(load(file))

    file = os.path.join(folder, 'threads.json')
    silent(run(PROGRAM, 'threads', file))
    check_threads(load(file))

    silent(run(PROGRAM, 'busy', RUNNEL_TRACE=os.path.join(folder, 'busy-%p.json')))
    (busy,) = [name for name in os.listdir(folder) if name.startswith('busy-')]
    expect(busy[5:-5].isdigit(), '%p is the number of the process')
    expect([e for e in load(os.path.join(folder, busy)) if e.get('name') == 'copy' and e['ph'] == 'i'], 'work that runs on at exit has no end')

    done = run(PROGRAM, 'work', RUNNEL_TRACE=os.path.join(folder, 'missing', 'a.json'))
    expect(done.stderr.count('\n') == 1 and 'a.json: No such file or directory' in done.stderr and done.stdout == '', 'an unwritable file is said once')

    # In a program of a language whose numbers have a comma.
    if shutil.which('localedef') and subprocess.run(['localedef', '-i', 'de_DE', '-f', 'UTF-8', os.path.join(folder, 'de_DE.UTF-8')]).returncode == 0:
        file = os.path.join(folder, 'comma.json')
        silent(run(PROGRAM, 'work', RUNNEL_TRACE=file, LOCPATH=folder, LC_ALL='de_DE.UTF-8'))
        check_work(load(file))

    if len(sys.argv) > 2:
        file = os.path.join(folder, 'tool.json')
        run(sys.argv[2], 'overlap', '--table', 'upper', '/etc/passwd', os.path.join(folder, 'out'), RUNNEL_TRACE=file)
        expect(slices(load(file), 'copy', True), 'a trace of the command')
