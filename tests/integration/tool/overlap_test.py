# SPDX-License-Identifier: Apache-2.0
"""`runnel overlap` writes the same as tr, for any size of file and chunk."""
import json
import os
import random
import subprocess
import xml.etree.ElementTree

import tool

if not tool.has_device():
    tool.skip('no device')

TABLES = {
    'upper': ['tr', 'a-z', 'A-Z'],
    'lower': ['tr', 'A-Z', 'a-z'],
    'rot13': ['tr', 'a-zA-Z', 'n-za-mN-ZA-M'],
}


def expected(table, data):
    if table == 'invert':
        return bytes(255 - byte for byte in data)
    return subprocess.run(TABLES[table], input=data, capture_output=True, check=True, env={**os.environ, 'LC_ALL': 'C'}).stdout


random.seed(1)
with tool.scratch() as directory:
    source, target = tool.path(directory, 'in'), tool.path(directory, 'out')

    # File sizes around the chunk size, chunk sizes that do not divide the file, and fewer or more streams than chunks.
    for size, chunk, in_flight, streams in [(1, '16M', 4, 4), (4095, '4K', 4, 4), (4096, '4K', 4, 4), (4097, '4K', 4, 4),
                                            (100_000, '1000', 1, 1), (100_001, '1000', 3, 2), (1_000_003, '64K', 2, 5), (999, '1', 16, 3)]:
        data = random.randbytes(size)
        source.write_bytes(data)
        for table in (*TABLES, 'invert'):
            done = tool.run('overlap', '--table', table, '--chunk', chunk, '--in-flight', in_flight, '--streams', streams, source, target)
            tool.expect(done.returncode == 0 and target.read_bytes() == expected(table, data),
                        f'{table} of {size} bytes in chunks of {chunk}, {in_flight} in flight on {streams} streams {done.stderr.decode()}')

    # All strategies write the same.
    data = random.randbytes(300_001)
    source.write_bytes(data)
    for strategy, said in (('automatic', ''), ('A', 'stream per chunk'), ('stream-per-chunk', 'stream per chunk'),
                           ('B', 'copy, compute, copy'), ('copy-compute-copy', 'copy, compute, copy')):
        done = tool.run('overlap', '--table', 'rot13', '--chunk', '10000', '--strategy', strategy, source, target)
        tool.expect(done.returncode == 0 and target.read_bytes() == expected('rot13', data) and said in done.stdout.decode(),
                    f'strategy {strategy} {done.stderr.decode()}')

    # The histogram counts the bytes of the input, of short chunks and long ones. The report names the slowest step.
    source.write_bytes(b'a' * 750 + b'\n' * 250)
    for chunk in ('7', '999', '16M'):
        text = tool.run('overlap', '--table', 'upper', '--chunk', chunk, source, target).stdout.decode()
        lines = [line.split() for line in text.splitlines()]
        tool.expect(any(line[:3] == ["'a'", '750', '75.0'] for line in lines) and any(line[:3] == ['\\n', '250', '25.0'] for line in lines),
                    f'the histogram counts every byte of chunks of {chunk}')
        tool.expect('; slowest step: ' in text, 'the report names the slowest step')

    # The timeline is valid XML, has a bar for each step of each chunk and a lane for each stream, and states the result.
    picture, trace = tool.path(directory, 'a.svg'), tool.path(directory, 'a.json')
    source.write_bytes(random.randbytes(500_000))
    for strategy, streams in (('A', ['stream 0', 'stream 1', 'stream 2', 'stream 3']),
                              ('B', ['copy in stream', 'compute stream', 'copy out stream'])):
        tool.run('overlap', '--table', 'lower', '--chunk', '100000', '--strategy', strategy, '--timeline', picture, '--trace', trace, source, target)
        root = xml.etree.ElementTree.parse(picture).getroot()
        titles = [title.text for title in root.iter('{http://www.w3.org/2000/svg}title')]
        for step in ('read', 'transfer in', 'compute', 'transfer out', 'write'):
            tool.expect(sum(f', {step}' in title for title in titles) == 5, f'the timeline shows 5 times {step!r}')
        texts = [text.text for text in root.iter('{http://www.w3.org/2000/svg}text')]
        for text in (*streams, 'idle', 'busy', 'time since the start, ms'):
            tool.expect(text in texts, f'the timeline of strategy {strategy} says {text!r}')
        tool.expect('hidden behind compute' in texts[0], 'the timeline states the result')

        # The trace has the format of chrome://tracing and Perfetto: complete events on named threads.
        events = json.loads(trace.read_text())['traceEvents']
        threads = {event['tid']: event['args']['name'] for event in events if event['ph'] == 'M' and event['name'] == 'thread_name'}
        tool.expect(list(threads.values()) == ['file read', *streams, 'file write'], f'the trace of strategy {strategy} names its threads')
        bars = [event for event in events if event['ph'] == 'X']
        tool.expect(len(bars) == 25 and len(events) == len(bars) + 2 * len(threads) + 1, 'the trace has 5 steps of 5 chunks')
        tool.expect(all(event['dur'] >= 0 and event['ts'] >= 0 and event['pid'] == 1 and event['tid'] in threads and
                        event['cat'] in ('file', 'transfer', 'compute') and 0 <= event['args']['chunk'] < 5 for event in bars),
                    'each event has its times, its thread and its chunk')
        for tid in threads:
            ends = sorted((event['ts'], event['ts'] + event['dur']) for event in bars if event['tid'] == tid)
            tool.expect(all(a[1] <= b[0] + 0.01 for a, b in zip(ends, ends[1:])), f'nothing in {threads[tid]!r} overlaps')
    done = tool.run('overlap', '--table', 'lower', '--chunk', '1000', '--timeline', picture, source, target)
    tool.expect('excerpt, chunks 238 to 261 of 500' in picture.read_text(), 'the timeline of a long run shows an excerpt, and says so')

    # A long file name is shortened in the title.
    long_name = tool.path(directory, 'n' * 200)
    source.rename(long_name)
    tool.run('overlap', '--table', 'lower', '--timeline', picture, long_name, target)
    title = next(xml.etree.ElementTree.parse(picture).getroot().iter('{http://www.w3.org/2000/svg}text')).text
    tool.expect('nnn...nnn' in title and 'GB/s' in title and len(title) < 120, f'the title fits: {title}')
    long_name.unlink()

    # Empty files, pipes, devices, links and existing files.
    source.write_bytes(b'')
    done = tool.run('overlap', '--table', 'upper', '--timeline', picture, '--trace', trace, source, target)
    tool.expect(done.returncode == 0 and target.read_bytes() == b'' and b'is empty' in done.stderr, 'an empty file gives an empty file')
    tool.expect('nothing to do' in picture.read_text(), 'an empty file gives an empty timeline')
    tool.expect(all(event['ph'] == 'M' for event in json.loads(trace.read_text())['traceEvents']), 'an empty file gives an empty trace')
    data = random.randbytes(300_000)
    done = tool.run('overlap', '--table', 'upper', '--chunk', '10000', '/dev/stdin', '/dev/stdout', input=data)
    tool.expect(done.returncode == 0 and done.stdout == expected('upper', data), 'from a pipe to a pipe')
    source.write_bytes(data)
    done = tool.run('overlap', '--table', 'upper', source, '/dev/null')
    tool.expect(done.returncode == 0 and tool.path('/dev', 'null').is_char_device(), 'a device is written to, not replaced')
    target.chmod(0o640)
    link = tool.path(directory, 'link')
    link.symlink_to(target)
    done = tool.run('overlap', '--table', 'upper', source, link)
    tool.expect(done.returncode == 0 and link.is_symlink() and target.read_bytes() == expected('upper', data) and
                target.stat().st_mode & 0o777 == 0o640, 'a link stays a link, and a file keeps its mode')
    tool.expect(sorted(os.listdir(directory)) == ['a.json', 'a.svg', 'in', 'link', 'out'], 'no other files are left behind')
