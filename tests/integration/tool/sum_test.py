# SPDX-License-Identifier: Apache-2.0
"""`runnel sum` finds the sum, the minimum and the maximum that Python finds, by one process and by several. Sums of integers are exact."""
import array
import json
import math
import random

import several
import tool

if not tool.has_device():
    tool.skip('no device')

CODES = {'u8': 'B', 'i32': 'i', 'i64': 'q', 'f32': 'f', 'f64': 'd'}


def found(count, type, *arguments, **options):
    done = several.run(several.command(count, 'sum', '--type', type, '--json', *arguments), **options)
    tool.expect(done.returncode == 0, f'sum of {type}, {count} processes of mpirun {done.stderr.decode().strip()}')
    return json.loads(done.stdout)


def is_right(count, type, numbers, *arguments, **options):
    result = found(count, type, *arguments, **options)
    exact = sum(numbers) if type[0] != 'f' else math.fsum(numbers)
    # Each addition may round once. A sum in order of n numbers is off by less than n * 2^-53 times the sum of their sizes.
    error = 0 if type[0] != 'f' else len(numbers) * 2.0 ** -53 * math.fsum(map(abs, numbers))
    fits = type[0] == 'f' or -2 ** 63 <= exact < 2 ** 63
    tool.expect(isinstance(result['sum'], str) != fits, f'only a sum of more than 64 bits is a string: {result}')
    right = abs((result['sum'] if fits else int(result['sum'])) - exact) <= error and result['numbers'] == len(numbers) and result['nans'] == 0
    ends = (result.get('minimum'), result.get('maximum')) == ((min(numbers), max(numbers)) if numbers else (None, None))
    tool.expect(right and ends, f'{len(numbers)} of {type}: {result}, wanted {exact}')


random.seed(2)
LARGE = 2 ** 63 - 1
SAMPLES = {
    'u8': array.array('B', random.randbytes(200_001)),
    'i32': array.array('i', [random.randint(-2 ** 31, 2 ** 31 - 1) for _ in range(100_001)]),
    'i64': array.array('q', [random.randint(-2 ** 63, LARGE) for _ in range(50_001)]),
    'f32': array.array('f', [random.gauss(1, 1000) for _ in range(100_001)]),
    'f64': array.array('d', [random.gauss(1, 1e100) for _ in range(50_001)]),
}
with tool.scratch() as directory:
    source, more, empty = (tool.path(directory, name) for name in ('in', 'more', 'empty'))
    empty.touch()
    for count in several.COUNTS:
        for type, numbers in SAMPLES.items():
            source.write_bytes(numbers.tobytes())
            more.write_bytes(numbers[:3].tobytes())
            is_right(count, type, numbers[:3] + numbers + numbers[:3], '--chunk', '1003', more, source, empty, more)
            if type == 'f32':
                is_right(count, type, numbers[:3] + numbers, '--chunk', '1', more, '/dev/stdin', input=numbers.tobytes())

        is_right(count, 'i32', SAMPLES['i32'][:0], empty)
        source.write_bytes(b'\1\2\3')
        is_right(count, 'u8', array.array('B', [1, 2, 3]), source)

        # Sums that do not fit into 64 bits.
        for number in (LARGE, -2 ** 63):
            source.write_bytes(array.array('q', [number] * 100_000).tobytes())
            is_right(count, 'i64', [number] * 100_000, '--chunk', '10000', source)
        if count in (1, 4):
            continue  # a launcher takes its time, and the rest is the same for any number of processes

        # What is no number, and what is infinite.
        source.write_bytes(array.array('d', [1, math.nan, 3]).tobytes())
        result = found(count, 'f64', source)
        tool.expect((result['sum'], result['nans'], result['minimum'], result['maximum']) == ('nan', 1, 1, 3), f'a NaN: {result}')
        source.write_bytes(array.array('f', [1, -math.inf]).tobytes())
        result = found(count, 'f32', source)
        tool.expect((result['sum'], result['minimum'], result['maximum']) == ('-inf', '-inf', 1), f'an infinity: {result}')

        source.write_bytes(array.array('i', [5, -7, 3]).tobytes())
        text = several.run(several.command(count, 'sum', '--type', 'i32', source)).stdout.decode()
        tool.expect([line.split() for line in text.splitlines()[2:]] ==
                    [['numbers', '3', 'of', 'type', 'i32'], ['sum', '1'], ['minimum', '-7'], ['maximum', '5']], f'the table: {text}')

    # The summary says which chunks were used: whole numbers.
    source.write_bytes(bytes(8000))
    for type, given, used in (('f64', '1003', '1000 bytes'), ('f64', '1', '8 bytes'), ('i32', '1027', '1 KiB'), ('u8', '1003', '1003 bytes'), ('i64', '1M', '7.8 KiB')):
        text = tool.run('sum', '--type', type, '--chunk', given, source).stdout.decode()
        tool.expect(f'chunks of {used},' in text, f'{type} in chunks of {given}: {text}')
