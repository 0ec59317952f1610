# SPDX-License-Identifier: Apache-2.0
"""The command writes its output to the requested place, or fails with one line. An existing file loses nothing."""
import os
import subprocess

import tool

if not tool.has_device():
    tool.skip('no device')

DATA = b'some text\n' * 1000
UPPER = DATA.upper()


def run_into(output, *arguments):
    """Runs the command with its standard output in a file. `output` is the path and the flags to open it."""
    path, flags = output
    descriptor = os.open(path, flags, 0o644)
    try:
        return subprocess.run([tool.RUNNEL, *map(str, arguments)], stdout=descriptor, stderr=subprocess.PIPE, timeout=tool.LIMIT_S)
    finally:
        os.close(descriptor)


def run_into_left_pipe(*arguments):
    """Runs the command with its standard output in a pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, 'wb') as output:
        return subprocess.run([tool.RUNNEL, *map(str, arguments)], stdout=output, stderr=subprocess.PIPE, timeout=tool.LIMIT_S)


def fails_in_one_line(what, done, reason):
    error = done.stderr.decode()
    tool.expect(done.returncode == 1 and error.startswith('runnel: cannot write') and error.count('\n') == 1 and reason in error,
                f'{what} fails with {reason}: status {done.returncode}, {error.strip()}')


with tool.scratch() as directory:
    source, target, there = (tool.path(directory, name) for name in ('in', 'out', 'there'))
    source.write_bytes(DATA)
    overlap = ('overlap', '--table', 'upper', '--chunk', '1000', source)

    # The standard output is a file. The command writes at its current position, as for a shell's > and >>.
    for name in ('/dev/stdout', '/dev/fd/1', '/proc/self/fd/1'):
        there.write_bytes(b'old\n')
        inode = there.stat().st_ino
        done = run_into((there, os.O_WRONLY | os.O_APPEND), *overlap, name)
        tool.expect(done.returncode == 0 and there.read_bytes() == b'old\n' + UPPER and there.stat().st_ino == inode,
                    f'{name} appends to a file: {done.stderr.decode().strip()}')
    (link := tool.path(directory, 'to-stdout')).symlink_to('/dev/stdout')
    for name in ('/dev/stdout', link):
        there.write_bytes(b'old\n')
        done = run_into((there, os.O_WRONLY | os.O_TRUNC), *overlap, name)
        tool.expect(done.returncode == 0 and there.read_bytes() == UPPER and b'GB/s' in done.stderr,
                    f'{name} writes a file; the report goes to standard error: {done.stderr.decode().strip()}')
    script = 'echo first; "$@" 2>/dev/null; echo last'
    with open(there, 'wb') as output:
        subprocess.run(['sh', '-c', script, 'sh', tool.RUNNEL, *map(str, overlap), '/dev/stdout'], stdout=output, check=True, timeout=tool.LIMIT_S)
    tool.expect(there.read_bytes() == b'first\n' + UPPER + b'last\n', 'the output stays in order with the output of other commands')
    there.write_bytes(b'')
    done = run_into((there, os.O_WRONLY), *overlap, '--timeline', there, '/dev/stdout')
    tool.expect(done.returncode == 1 and b'same file' in done.stderr, 'a timeline in the same file is refused')
    done = run_into((source, os.O_WRONLY | os.O_APPEND), *overlap, '/dev/stdout')
    tool.expect(done.returncode == 1 and b'is the file to read' in done.stderr and source.read_bytes() == DATA, 'the input as output is refused')
    with open('/dev/null', 'rb') as reading:
        done = tool.run(*overlap, '/dev/stdin', stdin=reading)
    tool.expect(done.returncode == 1 and done.stderr.count(b'\n') == 1 and b'cannot write' in done.stderr, 'a descriptor that is open for reading only is refused')
    done = tool.run(*overlap, '/dev/fd/999')
    tool.expect(done.returncode == 1 and done.stderr.count(b'\n') == 1 and b'cannot write' in done.stderr, 'a descriptor that is not open is refused')

    # A link whose target does not exist yet. The command makes the target.
    (below := tool.path(directory, 'below')).mkdir()
    first, second = tool.path(directory, 'first'), tool.path(directory, 'second')
    first.symlink_to(second)
    second.symlink_to('below/made')
    done = tool.run(*overlap, first)
    tool.expect(done.returncode == 0 and first.is_symlink() and second.is_symlink() and (below / 'made').read_bytes() == UPPER,
                f'a link to a new file is followed {done.stderr.decode().strip()}')
    (below / 'made').unlink()
    done = tool.run(*overlap, '--trace', below / 'made', first)
    tool.expect(done.returncode == 1 and b'same file' in done.stderr and not os.listdir(below), 'a trace under the name of the link\'s target is refused')
    (nowhere := tool.path(directory, 'nowhere')).symlink_to('none/made')
    (around := tool.path(directory, 'around')).symlink_to('around')
    for broken in (nowhere, around):
        done = tool.run(*overlap, broken)
        tool.expect(done.returncode == 1 and done.stderr.count(b'\n') == 1 and b'cannot write' in done.stderr and broken.is_symlink(),
                    f'a link that leads nowhere is refused: {done.stderr.decode().strip()}')

    # Writing to the standard output fails.
    full = ('/dev/full', os.O_WRONLY)
    for arguments in (('info',), ('info', '--why'), ('--help',), ('overlap', '--help'), ('--version',), ('bench', '--size', '2M', '--chunk', '256K'),
                      ('bench', '--size', '2M', '--chunk', '256K', '--json'), (*overlap, '/dev/stdout'), (*overlap, target),
                      (*overlap, '--trace', '/dev/stdout', target), (*overlap, '--timeline', '/dev/stdout', target)):
        fails_in_one_line(' '.join(map(str, arguments)), run_into(full, *arguments), 'No space left')
        fails_in_one_line(' '.join(map(str, arguments)), run_into_left_pipe(*arguments), 'Broken pipe')
    if b'overlap is not measured' not in tool.run('bench', '--size', '2M', '--chunk', '256K', '--json').stderr:
        (folder := tool.path(directory, 'pictures')).mkdir()
        (folder / 'pinned-stream-per-chunk.svg').symlink_to('/dev/full')
        done = tool.run('bench', '--size', '2M', '--chunk', '256K', '--timelines', folder)
        tool.expect(done.returncode == 1 and done.stderr.count(b'\n') == 1 and b'cannot write' in done.stderr,
                    f'bench --timelines into a full device: {done.stderr.decode().strip()}')
