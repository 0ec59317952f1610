# SPDX-License-Identifier: Apache-2.0
"""The compiler refuses each mistake in mistakes.cpp with the one line that it must give.

usage: mistakes.py INCLUDE-FOLDER COMPILER [COMPILER...]   (each is a command in one argument)"""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / 'mistakes.cpp'
EXPECTED = re.compile(r'// (error|warning): (.*)$')
FOUND = re.compile(r'^(\S+?):(\d+):\d+: (fatal error|error|warning): (.*)$', re.MULTILINE)


def complaints_of(compiler, include):
    """Yields what is wrong with the lines that the compiler gives."""
    flags = ['-std=c++20', '-Wall', '-Wextra', '-Wno-unused-variable', '-fsyntax-only', f'-I{HERE.parents[1] / "include"}', f'-I{include}']
    flags.append('-ferror-limit=0' if 'clang' in compiler else '-fmax-errors=0')
    output = subprocess.run([*compiler.split(), *flags, SOURCE], capture_output=True, text=True, env={**os.environ, 'LC_ALL': 'C'}).stderr
    expected = {n: m.groups() for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if (m := EXPECTED.search(line))}
    found = {}
    for path, line, kind, text in FOUND.findall(output):
        place = int(line) if path == str(SOURCE) else f'{path}:{line}'
        found.setdefault(place, []).append((kind, text))
    print(f'{compiler}: {len(expected)} mistakes')
    for place in sorted({*expected, *found}, key=str):
        kind, text = expected.get(place, ('', ''))
        got = found.get(place, [])
        if len(got) != 1 or got[0][0] != kind or text not in got[0][1]:
            wanted = f'one {kind} with "{text}"' if kind else 'nothing'
            yield f'line {place}: expected {wanted}, got {got or "nothing"}'


include, compilers = sys.argv[1], dict.fromkeys(sys.argv[2:])
complaints = [complaint for compiler in compilers for complaint in complaints_of(compiler, include)]
print('\n'.join(complaints))
sys.exit(1 if complaints or not compilers else 0)
