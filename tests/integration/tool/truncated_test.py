# SPDX-License-Identifier: Apache-2.0
"""If the input becomes shorter while `runnel overlap` reads it, the command fails with one line and leaves no result."""
import os
import signal
import subprocess
import time

import tool

if not tool.has_device():
    tool.skip('no device')


def fails(what, status, error):
    tool.expect(status == 1 and error.startswith('runnel: ') and error.count('\n') == 1 and 'became shorter' in error,
                f'{what}: status {status}, {error.strip()}')


def start(*arguments):
    return subprocess.Popen([tool.RUNNEL, 'overlap', '--table', 'upper', *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


with tool.scratch() as directory:
    source, target, pipe = (tool.path(directory, name) for name in ('in', 'out', 'pipe'))

    # The output is a pipe, which holds less than the input. The test reads only one byte before it makes the input shorter.
    os.mkfifo(pipe)
    for chunk, left in (('4K', 1 << 20), ('4K', (1 << 20) + 1), ('64K', 0)):
        source.write_bytes(b'a' * (4 << 20))
        running = start('--chunk', chunk, source, pipe)
        with open(pipe, 'rb') as reading:
            tool.expect(reading.read(1) == b'A', 'the first byte has come')
            os.truncate(source, left)
            reading.read()
        error = running.communicate(timeout=tool.LIMIT_S)[1].decode()
        fails(f'{left} bytes are left', running.returncode, error)

    # The input is so large that the command cannot finish before it becomes shorter.
    target.write_bytes(b'old')
    for before in (b'old', None):
        if before is None:
            target.unlink()
        source.write_bytes(b'')
        os.truncate(source, 64 << 30)
        names = set(os.listdir(directory))
        running = start('--chunk', '64K', source, target)
        deadline = time.monotonic() + 30
        while set(os.listdir(directory)) == names and time.monotonic() < deadline:
            time.sleep(0.001)
        running.send_signal(signal.SIGSTOP)
        os.truncate(source, 100_000)
        running.send_signal(signal.SIGCONT)
        error = running.communicate(timeout=tool.LIMIT_S)[1].decode()
        fails('the output is a file', running.returncode, error)
        tool.expect(set(os.listdir(directory)) == names, 'no file is left behind')
        tool.expect(before is None or target.read_bytes() == before, 'an old output is unchanged')

    # The input grows: the command reads it to its new end.
    source.write_bytes(b'a' * (4 << 20))
    running = start('--chunk', '4K', source, pipe)
    with open(pipe, 'rb') as reading:
        reading.read(1)
        with open(source, 'ab') as growing:
            growing.write(b'b' * 1000)
        result = reading.read()
    tool.expect(running.wait(timeout=tool.LIMIT_S) == 0 and result == b'A' * ((4 << 20) - 1) + b'B' * 1000, 'the input may grow while it is read')
    running.communicate()

    # Files of the kernel end before the size that they report.
    kernel = next((name for name in ('/sys/kernel/mm/transparent_hugepage/enabled', '/sys/kernel/uevent_seqnum') if os.path.isfile(name)), None)
    if kernel is not None:
        done = tool.run('overlap', '--table', 'upper', kernel, target)
        tool.expect(done.returncode == 0 and target.stat().st_size < os.stat(kernel).st_size, f'{kernel} is read {done.stderr.decode().strip()}')
