# SPDX-License-Identifier: Apache-2.0
"""`runnel overlap` refuses bad input with one line. It never damages the input and never leaves an incomplete file."""
import os
import resource
import signal
import subprocess
import time

import tool

if not tool.has_device():
    tool.skip('no device')

DATA = b'some text\n' * 1000


def refuses(what, *arguments, says, status=1, environment=None):
    """Expects that the command fails with one line that contains all words of `says`, and leaves the directory unchanged."""
    before = {name: tool.path(directory, name).stat() for name in os.listdir(directory)}
    done = tool.run('overlap', *arguments, environment=environment)
    error = done.stderr.decode()
    good = done.returncode == status and error.startswith('runnel: ') and error.count('\n') == 1 and error[:-1].isprintable() and all(word in error for word in says)
    after = {name: tool.path(directory, name).stat() for name in os.listdir(directory)}
    same = before.keys() == after.keys() and all((before[name].st_ino, before[name].st_size) == (after[name].st_ino, after[name].st_size)
                                                 for name in before)
    tool.expect(good and same and source.read_bytes() == DATA, f'{what}: status {done.returncode}, {error.strip()}')


with tool.scratch() as directory:
    source, target = tool.path(directory, 'in'), tool.path(directory, 'out')
    source.write_bytes(DATA)
    upper = ('--table', 'upper')

    refuses('missing input', *upper, tool.path(directory, 'none'), target, says=['cannot read', 'No such file', 'check the name'])
    refuses('input is a directory', *upper, directory, target, says=['is a directory'])
    refuses('input fails while it is read', *upper, '/proc/self/mem', target, says=['cannot read'])
    refuses('empty name', *upper, source, '', says=['name'])
    misspelt = tool.run('overlaps', *upper, source, target)
    tool.expect(misspelt.returncode == 2 and b"there is no subcommand 'overlaps'; choose one of info, overlap, bench" in misspelt.stderr,
                f'a subcommand that does not exist: {misspelt}')
    alone = tool.run()
    tool.expect(alone.returncode == 2 and b'one of info, overlap, bench' in alone.stderr, f'no subcommand: {alone}')
    unknown = tool.run('info', '--device', '3')
    tool.expect(unknown.returncode == 2 and b"info does not know '--device' '3'" in unknown.stderr, f'an option that is not there: {unknown}')
    refuses('name with a line break', *upper, 'a\nb', target, says=['a?b'])
    refuses('option with a code for the terminal', *upper, '--\x1b[31mred', source, target, says=['--?[31mred'], status=2)
    refuses('number with a code for the terminal', *upper, '--in-flight', '\x1b[31m\r9', source, target, says=['--in-flight', '?[31m?9'], status=2)
    for option in ('--timeline', '--trace'):
        refuses(f'{option} with an empty name', *upper, option, '', source, target, says=[option, 'empty'], status=2)

    refuses('output is the input', *upper, source, source, says=['is the file to read'])
    refuses('output is the input by another path', *upper, source, tool.path(directory, '.') / 'in', says=['is the file to read'])
    (hard := tool.path(directory, 'hard')).hardlink_to(source)
    refuses('output is a hard link to the input', *upper, source, hard, says=['is the file to read'])
    (soft := tool.path(directory, 'soft')).symlink_to(source)
    refuses('output is a link to the input', *upper, source, soft, says=['is the file to read'])
    refuses('timeline is the input', *upper, '--timeline', source, source, target, says=['is the file to read'])
    refuses('trace is the input', *upper, '--trace', source, source, target, says=['is the file to read'])
    refuses('trace is the output', *upper, '--trace', target, source, target, says=['same file'])
    refuses('trace is the timeline', *upper, '--trace', tool.path(directory, 'x'), '--timeline', tool.path(directory, 'x'), source, target,
            says=['same file'])
    refuses('timeline is the output', *upper, '--timeline', target, source, target, says=['same file'])

    refuses('output in a missing directory', *upper, source, tool.path(directory, 'no/out'), says=['cannot write', 'No such file'])
    refuses('output is a directory', *upper, source, directory, says=['is a directory'])
    refuses('output below a file', *upper, source, source / 'out', says=['cannot write', 'Not a directory'])
    refuses('output is full', *upper, source, '/dev/full', says=['cannot write', 'No space left', 'free some space'])
    refuses('trace is full', *upper, '--trace', '/dev/full', source, target, says=['cannot write', 'No space left'])
    refuses('timeline is full', *upper, '--timeline', '/dev/full', source, target, says=['cannot write', 'No space left'])
    if os.geteuid() != 0:
        locked = tool.path(directory, 'locked')
        locked.write_bytes(b'')
        locked.chmod(0)
        refuses('unreadable input', *upper, locked, target, says=['cannot read', 'Permission denied'])
        refuses('unwritable output', *upper, source, locked, says=['cannot write', 'Permission denied'])

    for chunk in ('0', '0K', 'x', '12x', '1.5M', '-5', ' 1', '16 M', '99999999999999999999', '99999999999T'):
        refuses(f'chunk of {chunk!r}', *upper, f'--chunk={chunk}', source, target, says=['--chunk'], status=2)
    refuses('chunk larger than memory', *upper, '--chunk', '1000T', source, target, says=['--chunk', 'memory', 'smaller'])
    for option in ('--in-flight', '--streams'):
        for number in ('0', '-1', 'x', '99999999999999'):
            refuses(f'{option} {number}', *upper, f'{option}={number}', source, target, says=[option], status=2)
    refuses('unknown device', *upper, '--device', 99, source, target, says=['no device 99'])
    refuses('unknown strategy', *upper, '--strategy', 'C', source, target, says=['automatic, A', 'B (copy-compute-copy)'], status=2)
    refuses('unknown table', '--table', 'nothing', source, target, says=['upper, lower, invert, rot13'], status=2)
    refuses('no table', source, target, says=['--table'], status=2)
    refuses('no output', *upper, source, says=['OUT'], status=2)

    # An existing output stays unchanged if the command fails.
    target.write_bytes(b'old')
    refuses('input fails, and the output was there', *upper, '/proc/self/mem', target, says=['cannot read'])
    tool.expect(target.read_bytes() == b'old', 'the old file is unchanged')

    # Writing fails half way. A limit on the file's size stands for a full disk, because it needs no privileges.
    for trap in ('trap "" XFSZ; ', ''):
        for written in (target, '/dev/stdout'):
            names = sorted(os.listdir(directory))
            with open(tool.path(directory, 'printed'), 'wb') as printed:
                limited = subprocess.run(['sh', '-c', trap + 'ulimit -f 4; exec "$@"', 'sh', tool.RUNNEL, 'overlap', *upper, '--chunk', '1000',
                                          source, written], stdout=printed, stderr=subprocess.PIPE, timeout=tool.LIMIT_S)
            os.unlink(tool.path(directory, 'printed'))
            error = limited.stderr.decode()
            tool.expect(limited.returncode == 1 and error.count('\n') == 1 and 'File too large; raise the limit (ulimit -f)' in error and
                        target.read_bytes() == b'old' and sorted(os.listdir(directory)) == names, f'{written} cannot grow: {error.strip()}')

    # Signals while the command waits for input. Under nohup this test inherits an ignored SIGHUP, and as a shell's background job an ignored
    # SIGINT and SIGQUIT, so reset them first.
    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
    for number in endings:
        signal.signal(number, signal.SIG_DFL)
    os.mkfifo(fifo := tool.path(directory, 'fifo'))
    names = sorted(os.listdir(directory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT would leave a file with the memory
    for number in endings:
        running = subprocess.Popen([tool.RUNNEL, 'overlap', *upper, fifo, target], stderr=subprocess.PIPE)
        with open(fifo, 'wb') as feeding:
            feeding.write(DATA)
            feeding.flush()
            deadline = time.monotonic() + 30
            while sorted(os.listdir(directory)) == names and time.monotonic() < deadline:
                time.sleep(0.01)
            tool.expect(sorted(os.listdir(directory)) != names, 'the command writes a temporary file beside the output')
            running.send_signal(number)
            running.wait(timeout=30)
        running.stderr.close()
        tool.expect(running.returncode == -number, f'{number.name} ends the command')
        tool.expect(sorted(os.listdir(directory)) == names and target.read_bytes() == b'old', f'{number.name} leaves nothing behind')
