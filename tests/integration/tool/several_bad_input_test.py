# SPDX-License-Identifier: Apache-2.0
"""If something is wrong, `runnel histogram` and `runnel sum` end in all processes, with one line from one of them."""
import os
import pathlib
import subprocess
import time

import several
import tool

if not tool.has_device():
    tool.skip('no device')

COUNTS = [count for count in several.COUNTS if count != 1 and count != 4]  # a launcher takes a second to end after a failure


def refuses(what, *arguments, says, status=1):
    for count in COUNTS:
        done = several.run(several.command(count, *arguments), stdin=subprocess.DEVNULL)
        several.expect_one_line(f'{what}, {count} processes of mpirun', done.returncode, done.stderr, says, ends_with=status)
        tool.expect(done.stdout == b'', 'there is no result')


def wait_for(condition, what):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    tool.expect(condition(), what)


def workers(launcher):
    """The processes that mpirun has started, once they are runnel-mpi."""
    found = []
    for entry in pathlib.Path('/proc').iterdir():
        try:
            if entry.name.isdigit() and f'\nPPid:\t{launcher.pid}\n' in (entry / 'status').read_text() and (entry / 'exe').resolve().name == 'runnel-mpi':
                found.append(int(entry.name))
        except OSError:
            pass
    return sorted(found)


with tool.scratch() as directory:
    source, missing, empty = (tool.path(directory, name) for name in ('in', 'missing', 'empty'))
    source.write_bytes(b'some text\n' * 1000)
    empty.touch()
    os.mkfifo(fifo := tool.path(directory, 'fifo'))
    sum_i32 = ('sum', '--type', 'i32')

    for command in (('histogram',), sum_i32):
        refuses('no file', *command, says=['FILE', f'runnel {command[0]} --help'], status=2)
        refuses('a missing file', *command, missing, says=['cannot read', "missing'", 'check the name'])
        refuses('a directory', *command, directory, says=['is a directory'])
        refuses('an input that fails while it is read', *command, '/proc/self/mem', says=['cannot read'])
        refuses('an unknown device', *command, '--device', 99, source, says=['no device 99'])
        refuses('a chunk larger than memory', *command, '--chunk', '1000T', source, says=['--chunk', 'memory', 'smaller'])
        refuses('an unknown strategy', *command, '--strategy', 'C', source, says=['automatic, A'], status=2)
        refuses('no count', *command, '--in-flight', 'x', source, says=['--in-flight'], status=2)
    refuses('no type', 'sum', source, says=['--type'], status=2)
    refuses('an unknown type', 'sum', '--type', 'u7', source, says=['--type', "'u7'", 'u8, i32, i64, f32, f64'], status=2)
    (odd := tool.path(directory, 'odd')).write_bytes(b'12345')
    refuses('a size that does not fit', *sum_i32, source, odd, says=["odd' has 5 bytes", '4 bytes', '--type'])
    if os.geteuid() != 0:
        (locked := tool.path(directory, 'locked')).touch(mode=0)
        refuses('an unreadable file', 'histogram', locked, says=['cannot read', 'Permission denied'])
    for count in COUNTS:
        done = several.run(several.command(count, *sum_i32, '/dev/stdin'), input=b'12345678901')
        several.expect_one_line('a pipe that ends within a number', done.returncode, done.stderr, ['after 3 bytes', '4 bytes'])

    reading, writing = os.pipe()
    os.write(writing, b'45678')
    os.close(writing)
    done = tool.run('sum', '--type', 'i64', '/dev/stdin', f'/dev/fd/{reading}', input=b'123', pass_fds=[reading])
    several.expect_one_line('pipes that end within a number, and have whole numbers together', done.returncode, done.stderr,
                            ["'/dev/stdin' ended after 3 bytes", '8 bytes'])
    os.close(reading)

    # The input becomes shorter while it is read.
    for count in COUNTS:
        for command in (('histogram',), sum_i32):
            with open(large := tool.path(directory, 'large'), 'wb') as file:
                file.truncate(64 << 30)
            running = several.start(several.command(count, *command, '--progress', large))
            tool.expect(running.stderr.read(1) == b'\r', 'it is under way')
            os.truncate(large, 100_000)
            error = running.communicate(timeout=tool.LIMIT_S)[1]
            several.expect_one_line(f'it becomes shorter, {count} processes of mpirun', running.returncode, error, ['became shorter'])

    if several.MPIRUN:
        # Of several processes only some fail, or each finds other files.
        good = ('histogram', source)
        done = several.run(several.each_with(good, good, ('histogram', missing), good))
        several.expect_one_line('a file is missing for one process', done.returncode, done.stderr, ["missing'"])
        done = several.run(several.each_with(good, ('histogram', missing), ('histogram', missing), good))
        several.expect_one_line('a file is missing for two processes', done.returncode, done.stderr, ["missing'"])
        done = several.run(several.each_with(good, ('histogram', '--chunk', 'x', source)))
        several.expect_one_line('an option is wrong for one process', done.returncode, done.stderr, ['--chunk'], ends_with=2)
        done = several.run(several.each_with(good, ('histogram', empty)))
        several.expect_one_line('other files', done.returncode, done.stderr, ['process 0 finds 10000 bytes', 'process 1 finds 0'])
        # Process 0 waits for a pipe that nothing is written to.
        done = several.run(several.each_with(('histogram', fifo), ('histogram', missing)))
        several.expect_one_line('one process fails while another waits', done.returncode, done.stderr, ["missing'"])
        # Process 0 fails while the other has done its part and waits.
        done = several.run(several.each_with(('histogram', source, '/proc/self/mem'), ('histogram', source)))
        several.expect_one_line('one process fails while another has done its part', done.returncode, done.stderr, ['cannot read'])

        # A process is killed. Then the launcher says so, and ends the others.
        for victim in (0, -1):
            running = several.start(several.command(2, 'histogram', fifo))
            with open(fifo, 'wb') as feeding:
                feeding.write(b'some')
                feeding.flush()
                wait_for(lambda: len(workers(running)) == 2, 'two processes are at work')
                started = workers(running)
                os.kill(started[victim], 9)
                output, error = running.communicate(timeout=tool.LIMIT_S)
            tool.expect(running.returncode != 0 and output == b'' and b'signal 9' in error, f'a process is killed: status {running.returncode}')
            wait_for(lambda: not any(os.path.exists(f'/proc/{pid}') for pid in started), 'no process is left')
