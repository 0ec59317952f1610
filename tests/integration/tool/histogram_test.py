# SPDX-License-Identifier: Apache-2.0
"""`runnel histogram` counts what Python counts, for any sizes of files and chunks, by one process and by several."""
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import time

import several
import tool

if not tool.has_device():
    tool.skip('no device')


def counts_of(data):
    counted = collections.Counter(data)
    return [counted[byte] for byte in range(256)]


def counts_right(what, count, data, *arguments, **options):
    done = several.run(several.command(count, 'histogram', '--json', *arguments), **options)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    tool.expect(found.get('counts') == counts_of(data) and found['bytes'] == len(data) and found['processes'] == max(count, 1),
                f'{what}, {count} processes of mpirun: {done.stderr.decode().strip()}')


random.seed(1)
with tool.scratch() as directory:
    one, two, empty = (tool.path(directory, name) for name in ('one', 'two', 'empty'))
    empty.touch()
    first, second = random.randbytes(3_000_001), b'some text\n' * 12345
    one.write_bytes(first)
    two.write_bytes(second)
    tool.path(directory, '[a,b]').write_bytes(b'abc')
    for count in several.COUNTS:
        counts_right('two files', count, first + second, one, two)
        counts_right('small chunks, and a file named twice', count, second + first + second, '--chunk', '1001', '--in-flight', 3, two, one, two)
        counts_right('strategy B', count, first, '--chunk', '100000', '--strategy', 'B', one)
        counts_right('files without a known size', count, first + b'piped' * 99999, empty, '/dev/stdin', one, input=b'piped' * 99999)
        counts_right('a name in brackets', count, b'abc' + second, '[a,b]', two, cwd=directory)
        counts_right('nothing', count, b'', empty)
        counts_right('more processes than bytes', count, b'abc', '/dev/stdin', input=b'abc')
        (short := tool.path(directory, 'short')).write_bytes(b'abc')
        counts_right('more processes than bytes of a file', count, b'abc', short)

        done = several.run(several.command(count, 'histogram', two))
        lines = [line.split() for line in done.stdout.decode().splitlines()]
        tool.expect(lines[0][:5] == ['123450', 'bytes', 'of', '1', 'file'] and lines[1][0] == str(max(count, 1)) and
                    lines[2] == ['10', '\\n', '12345', '10.0', '%'] and lines[-1] == ['120', "'x'", '12345', '10.0', '%'] and len(lines) == 2 + 8,
                    f'the table, {count} processes of mpirun: {done.stdout.decode()}')
        done = several.run(several.command(count, 'histogram', '--help'))
        tool.expect(done.returncode == 0 and done.stdout.count(b'Usage') == 1, 'the help is printed once')

        # The progress: process 0 shows the bytes of all.
        running = several.start(several.command(count, 'histogram', '--progress', '--chunk', '1000', one, '/dev/stdin'), stdin=subprocess.PIPE)
        shown_so_far, end = b'', time.monotonic() + tool.LIMIT_S
        os.set_blocking(running.stderr.fileno(), False)
        # The first file has megabytes. On a busy machine the first lines show less.
        while (shown_so_far.count(b'GB/s') < 2 or b'MiB' not in shown_so_far) and time.monotonic() < end:
            running.stdin.write(b'a' * 1000)
            running.stdin.flush()
            time.sleep(0.05)
            shown_so_far += running.stderr.read() or b''
        os.set_blocking(running.stderr.fileno(), True)
        error = (shown_so_far + running.communicate(timeout=tool.LIMIT_S)[1]).decode()
        shown = [part for part in error.split('\r') if 'GB/s' in part]
        tool.expect(running.returncode == 0 and len(shown) > 1 and 'MiB' in shown[-1], f'there is progress: {error!r}')
        tool.expect('GB/s' not in several.run(several.command(count, 'histogram', one)).stderr.decode(), 'there is none unless it is asked for')

    # More files than a process can have open.
    folder = tool.path(directory, 'many')
    folder.mkdir()
    for i in range(100):
        (folder / str(i)).write_bytes(bytes([i]) * i)
    done = subprocess.run(['sh', '-c', 'ulimit -n 64; exec "$@"', 'sh', tool.RUNNEL, 'histogram', '--json', *sorted(folder.iterdir())],
                          capture_output=True, timeout=tool.LIMIT_S)
    tool.expect(done.returncode == 0 and json.loads(done.stdout)['counts'] == [*range(100), *[0] * 156], f'many files {done.stderr.decode()}')
    for nothing in (empty, '/dev/null'):
        done = subprocess.run(['sh', '-c', 'ulimit -n 64; exec "$@"', 'sh', tool.RUNNEL, 'histogram', '--json', short, *[nothing] * 100, short],
                              capture_output=True, timeout=tool.LIMIT_S)
        tool.expect(done.returncode == 0 and json.loads(done.stdout)['counts'] == counts_of(b'abcabc'),
                    f'many times {nothing} {done.stderr.decode()}')
    # Threads of the process get stacks of this size.
    for arguments in (('histogram', one), ('overlap', '--table', 'upper', one, '/dev/null')):
        done = subprocess.run(['sh', '-c', 'ulimit -s 256; exec "$@"', 'sh', tool.RUNNEL, *arguments], capture_output=True, timeout=tool.LIMIT_S)
        tool.expect(done.returncode == 0, f'{arguments[0]} with small stacks: status {done.returncode}, {done.stderr.decode().strip()}')
    pipes = [tool.path(directory, f'pipe{i}') for i in range(100)]
    for pipe in pipes:
        os.mkfifo(pipe)
    # All are open at once, because their writers may wait for each other. The test opens them without waiting.
    writers = [os.open(pipe, os.O_RDWR) for pipe in pipes]
    done = subprocess.run(['sh', '-c', 'ulimit -n 64; exec "$@"', 'sh', tool.RUNNEL, 'histogram', *pipes], capture_output=True, timeout=tool.LIMIT_S)
    tool.expect(done.returncode == 1 and done.stderr.count(b'\n') == 1 and b'Too many open files; raise the limit (ulimit -n)' in done.stderr,
                f'too many pipes: {done.stderr.decode().strip()}')
    for writer in writers:
        os.close(writer)

    # Without the program for several processes. The libraries are found where the build has them.
    alone = tool.path(directory, 'runnel')
    shutil.copy(tool.RUNNEL, alone)
    library = pathlib.Path(tool.RUNNEL).resolve().parent.parent / 'src'
    for rank, lines in ((0, 1), (1, 0)):
        done = subprocess.run([alone, 'histogram', one], capture_output=True, timeout=tool.LIMIT_S,
                              env={**os.environ, 'LD_LIBRARY_PATH': str(library), 'PMI_SIZE': '2', 'PMI_RANK': str(rank)})
        tool.expect(done.returncode == 1 and done.stdout == b'' and done.stderr.count(b'\n') == lines and
                    (b'-Dmpi=enabled' in done.stderr) == (rank == 0), f'without MPI, process {rank}: {done.stderr.decode().strip()}')
    done = subprocess.run(['ldd', tool.RUNNEL], capture_output=True, check=True, timeout=tool.LIMIT_S)
    tool.expect(b'libc.so' in done.stdout and b'libmpi' not in done.stdout and b'-comm' not in done.stdout, 'the command does not load MPI')
