# SPDX-License-Identifier: Apache-2.0
"""`runnel bench` prints each kind of measurement as a table and as JSON, compares it with earlier results, and refuses bad input with one line."""
import json
import os
import xml.etree.ElementTree

import tool

if not tool.has_device():
    tool.skip('no device')

SMALL = ('--size', '2M', '--chunk', '256K')

done = tool.run('bench', *SMALL)
text = done.stdout.decode()
tool.expect(done.returncode == 0, 'bench works ' + done.stderr.decode())
for word in ('pinned memory', 'pageable memory', 'caller held', 'both ways', 'wait_stream', 'ns of the calling thread'):
    tool.expect(word in text, f'the table has {word!r}')

done = tool.run('bench', *SMALL, '--range', '3M', '--in-flight', '3', '--json',
                environment={'RUNNEL_STAGING_WORKERS': '3'})
measured = json.loads(done.stdout)
tool.expect(done.returncode == 0 and done.stdout.count(b'\n') == 1, 'JSON is one line')
tool.expect({(copy['direction'], copy['memory']) for copy in measured['copies']} ==
            {(direction, memory) for direction in ('in', 'out', 'both') for memory in ('pinned', 'pageable')}, 'JSON has every kind of copy')
tool.expect(all(copy['gigabytes_per_s'] > 0 and copy['held_us'] > 0 for copy in measured['copies']), 'copies have rates')
tool.expect(len(measured['operations']) == 10 and all(operation['ns'] > 0 for operation in measured['operations']), 'operations have costs')
if 'overlap is not measured' not in done.stderr.decode():
    overlap = measured['overlap']
    tool.expect(overlap['bytes'] == 2 << 20 and overlap['chunk'] == 256 << 10 and overlap['in_flight'] == 3 and
                overlap['limit_gigabytes_per_s'] > 0, 'JSON has the sizes of the overlap measurement')
    tool.expect([(rate['memory'], rate['strategy']) for rate in overlap['rates']] ==
                [(memory, strategy) for memory in ('pinned', 'pageable')
                 for strategy in ('one after the other', 'stream per chunk', 'copy, compute, copy', 'automatic')], 'JSON has every strategy')
    tool.expect(all(rate['gigabytes_per_s'] > 0 and rate['of_limit'] > 0 and rate['speedup'] > 0 and rate['chosen'] != 'automatic'
                    for rate in overlap['rates']), 'strategies have rates')
    tool.expect('bound of the host\'s memory, ' in text and 'of bound' in text, 'the table has the bound of the host\'s memory')
    bound = overlap['bound_beside_devices_gigabytes_per_s']
    tool.expect(overlap['bound_threads'] == 3 and overlap['bound_gigabytes_per_s'] > 0 and bound > 0,
                'the bound of the host\'s memory is measured with as many threads as there are staging workers')
    tool.expect(all('of_bound' not in rate if rate['memory'] == 'pinned' else
                    abs(rate['of_bound'] - rate['gigabytes_per_s'] / bound) < 1e-6 * rate['of_bound'] for rate in overlap['rates']),
                'rates of pageable memory are compared with the bound')
    tool.expect(measured['range']['bytes'] == 3 << 20 and measured['range']['device_bytes'] == 3 * 2 * (256 << 10),
                'a range goes through the memory of the chunks in flight')

    with tool.scratch() as directory:
        tool.run('bench', *SMALL, '--timelines', directory)
        wanted = {f'{memory}-{strategy}.svg' for memory in ('pinned', 'pageable')
                  for strategy in ('one-after-the-other', 'stream-per-chunk', 'copy-compute-copy')}
        tool.expect(set(os.listdir(directory)) == wanted, '--timelines draws a picture of each strategy')
        for name in wanted:
            root = xml.etree.ElementTree.parse(tool.path(directory, name)).getroot()
            titles = [title.text for title in root.iter('{http://www.w3.org/2000/svg}title')]
            tool.expect(len(titles) == 3 * 8, f'{name} shows 3 steps of 8 chunks')


def refuses(what, *arguments, says, status=1):
    done = tool.run('bench', *arguments)
    error = done.stderr.decode()
    tool.expect(done.returncode == status and not done.stdout and error.startswith('runnel: ') and error.count('\n') == 1 and
                all(word in error for word in says), f'{what}: status {done.returncode}, {error.strip()}')


def changed(results, factor):
    """The results as if every time had been so many times as long."""
    results = json.loads(json.dumps(results))
    for row in results['copies']:
        row['held_us'] *= factor
    for row in results['operations']:
        row['ns'] *= factor
    for row in [*results['copies'], *results.get('overlap', {}).get('rates', []), *filter(None, [results.get('range')])]:
        row['gigabytes_per_s'] /= factor
    return results


with tool.scratch() as directory:
    earlier = tool.path(directory, 'earlier.json')

    def compare(results, *more):
        earlier.write_text(results if isinstance(results, str) else json.dumps(results))
        return tool.run('bench', *SMALL, '--in-flight', '3', '--compare', earlier, *more)

    rows = 2 * len(measured['copies']) + len(measured['operations']) + len(measured.get('overlap', {}).get('rates', []))
    done = compare(changed(measured, 1e-6))
    text = done.stdout.decode()
    tool.expect(done.returncode == 3 and text.count('SLOWER') == rows and f'{rows} of {rows} rows are slower by more than 20 %' in text,
                f'every row is slower than a million times faster {done.stderr.decode()}')
    tool.expect(('range' not in measured) or 'not measured now' in text, 'a row that is no longer measured is named')
    few = {**changed(measured, 1e6), 'operations': []}
    done = compare(few, '--json', '--threshold', '50')
    text = done.stderr.decode()
    tool.expect(done.returncode == 0 and 'SLOWER' not in text and text.count('  faster') == rows - len(measured['operations']) and
                text.count('not there before') == len(measured['operations']) and f'0 of {rows} rows are slower by more than 50 %' in text,
                'no row is slower than a million times slower; rows that were not there are named')
    tool.expect(set(json.loads(done.stdout)) >= {'copies', 'operations'}, 'with --json the comparison does not go to the standard output')

    def refuses_earlier(what, results, *says):
        done = compare(results)
        error = done.stderr.decode()
        tool.expect(done.returncode == 1 and not done.stdout and error.startswith('runnel: ') and error.count('\n') == 1 and
                    all(word in error for word in says), f'{what}: status {done.returncode}, {error.strip()}')

    refuses_earlier('results of another device', {**measured, 'device': 'another one'}, 'device was another one', 'cannot be compared')
    refuses_earlier('results of another size', {**measured, 'copy_bytes': 4096}, 'size of copies was 4096', '--size')
    if 'overlap' in measured:
        refuses_earlier('results of other chunks', {**measured, 'overlap': {**measured['overlap'], 'chunk': 7}}, 'chunk was 7', '--chunk')
    for text in ('', '{}', '[]', 'null', '7', '"text"', '{"copies": 7}'):
        refuses_earlier(f'no results, {text}', text, 'bench --json')
    good = json.dumps(measured)
    for text in (good[:-1], good + 'x', good.replace(':', ';', 1), '{"a": "b', '{"a": "\\', '[' * 100_000, 'nul', '{"a" 1}', '[1 2]', '\1'):
        refuses_earlier(f'no JSON, {text[:20]}', text, 'is no JSON at byte ')
    earlier.unlink()
    done = tool.run('bench', *SMALL, '--compare', earlier)
    tool.expect(done.returncode == 1 and b'cannot read' in done.stderr, 'earlier results that are not there')
    for what in (directory, '/dev/zero'):
        refuses(f'{what} as earlier results', *SMALL, '--compare', what, says=[f"'{what}'", 'name a file that runnel bench --json has written'])

for option in ('--size', '--chunk', '--range'):
    for size in ('0', 'x', '1.5M', '-5', '99999999999999999999', 'nan', 'inf', '1e6'):
        refuses(f'{option} {size}', f'{option}={size}', says=[option], status=2)
for option in ('--size', '--chunk', '--range', '--device', '--timelines', '--compare'):
    refuses(f'{option} with an empty value', option, '', says=[option, 'empty'], status=2)
done = tool.run('bench', '--size', '1', '--device', '0,1', environment={'RUNNEL_HOST_DEVICES': '2'})
tool.expect(done.returncode == 0 or b'no device 1' in done.stderr, f'two devices get a byte each: status {done.returncode}, {done.stderr.decode().strip()}')
refuses('size larger than memory', '--size', '1000T', says=['--size', 'memory', 'smaller'])
refuses('range larger than memory', *SMALL, '--range', '1000T', says=['--range', 'memory', 'smaller'])
for number in ('0', '-1', 'x', 'nan', 'inf', '1.5', '1e2', '', '1025', '99999999999999999999'):
    refuses(f'--in-flight {number}', f'--in-flight={number}', says=['--in-flight'], status=2)
refuses('timelines into something that is no folder', *SMALL, '--timelines', '/dev/null', says=['--timelines', 'folder'])
for threshold in ('-1', 'x', '1001', 'nan', '-nan', 'inf', '-inf', '1e999', '', '5%'):
    refuses(f'--threshold {threshold}', f'--threshold={threshold}', says=['--threshold'], status=2)
refuses('unknown device', '--device', '99', says=['no device 99'])
refuses('a device twice', '--device', '0,0', says=['twice'], status=2)
refuses('a device that is no number', '--device', 'x', says=['--device'], status=2)
refuses('unknown option', '--nothing', says=['--nothing'], status=2)
