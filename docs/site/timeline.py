#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the streams of a trace (docs/tracing.md) as an SVG: a row for each stream, a bar for each operation.

usage: timeline.py TRACE.json PICTURE.svg TITLE"""
import collections
import html
import json
import pathlib
import sys

WIDTH, LEFT, RIGHT, ROW, TOP = 1200, 130, 20, 38, 84
COMPUTES = 'run a host function'  # on the host backend
COLOURS = {'transfer in': '#2f6db3', 'compute': '#f0a202', 'transfer out': '#147a54', 'other': '#888888'}
Bar = collections.namedtuple('Bar', 'begin length name')


def rows_of(events):
    """The bars of each stream that did something, in order, by a name that no other stream has."""
    names = {(e['pid'], e['tid']): e['args']['name'].replace(' (stream ', ' ').rstrip(')')
             for e in events if e['ph'] == 'M' and e['name'] == 'thread_name'}
    only = collections.Counter(name.rsplit(' ', 1)[0] for name in names.values())
    rows = {}
    for event in sorted((e for e in events if e['ph'] == 'X' and e['pid'] > 1), key=lambda e: e['ts']):
        name = names[event['pid'], event['tid']]
        short = name.rsplit(' ', 1)[0]
        rows.setdefault(short if only[short] == 1 else name, []).append(Bar(event['ts'], event['dur'], event['name']))
    return rows


def kind_of(bar, following, row, first_computing):
    """A trace does not say where a copy goes. In a stream that computes, a copy before computing goes to the device. A stream that only
    copies does so to the device if it began before anything was computed. Any other copy comes back."""
    if bar.name != 'copy':
        return 'compute' if bar.name == COMPUTES else 'other'
    if any(other.name == COMPUTES for other in row):
        return 'transfer in' if following is not None and following.name == COMPUTES else 'transfer out'
    return 'transfer in' if row[0].begin < first_computing else 'transfer out'


def draw(rows, title):
    bars = [bar for row in rows.values() for bar in row]
    start, end = min(bar.begin for bar in bars), max(bar.begin + bar.length for bar in bars)
    computing = min((bar.begin for bar in bars if bar.name == COMPUTES), default=end)
    room, height = WIDTH - LEFT - RIGHT, TOP + ROW * len(rows) + 34
    scale = room / (end - start)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="14">'
    yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    yield f'<text x="20" y="30" font-size="19" font-weight="bold">{html.escape(title)}</text>'
    for number, (kind, colour) in enumerate(list(COLOURS.items())[:3]):
        yield f'<rect x="{LEFT + number * 130}" y="46" width="16" height="16" fill="{colour}"/>'
        yield f'<text x="{LEFT + number * 130 + 22}" y="59">{kind}</text>'
    for place, (name, row) in enumerate(rows.items()):
        y = TOP + ROW * place
        yield f'<rect x="{LEFT}" y="{y}" width="{room}" height="{ROW - 8}" fill="#f3f3f3"/>'
        yield f'<text x="{LEFT - 10}" y="{y + 20}" text-anchor="end">{html.escape(name)}</text>'
        for bar, following in zip(row, [*row[1:], None]):
            yield (f'<rect x="{LEFT + (bar.begin - start) * scale:.2f}" y="{y + 3}" width="{max(0.8, bar.length * scale):.2f}" '
                   f'height="{ROW - 14}" fill="{COLOURS[kind_of(bar, following, row, computing)]}" stroke="#fff" stroke-width="0.5">'
                   f'<title>{html.escape(bar.name)}: {bar.length / 1000:.2f} ms</title></rect>')
    y = TOP + ROW * len(rows) + 16
    yield f'<text x="{LEFT}" y="{y}" fill="#444">0</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{y}" fill="#444" text-anchor="end">{(end - start) / 1000:.1f} ms</text>'
    yield '</svg>'


def main():
    trace, picture, title = sys.argv[1:]
    events = json.loads(pathlib.Path(trace).read_text())['traceEvents']
    pathlib.Path(picture).write_text('\n'.join(draw(rows_of(events), title)) + '\n')


if __name__ == '__main__':
    main()
