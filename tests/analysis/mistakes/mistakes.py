# SPDX-License-Identifier: Apache-2.0
"""The compiler refuses each mistake in a source with the one line that it must give: a comment behind the mistake, or on a line of its own
above it.

usage: mistakes.py SOURCE "FLAGS" COMPILER [COMPILER...]   (each is a command in one argument)
       mistakes.py SOURCE as:OTHER-SOURCE COMPILER [COMPILER...]   (with the flags of another source of the build)"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = re.compile(r'// (error|warning): (.*)$')
FOUND = re.compile(r'^(\S+?):(\d+):\d+: (fatal error|error|warning): (.*)$', re.MULTILINE)


def flags_of(source):
    """Where the build finds the headers of a source, as flags."""
    listed = json.loads((pathlib.Path(os.environ['MESON_BUILD_ROOT']) / 'compile_commands.json').read_text())
    entry = next(each for each in listed if (pathlib.Path(each['directory']) / each['file']).resolve() == source)
    flags = [flag for flag in shlex.split(entry['command']) if flag.startswith(('-I', '-isystem', '-fopenmp'))]
    return [re.sub('^(-I|-isystem)(?!/)', f'\\1{entry["directory"]}/', flag) for flag in flags]


def complaints_of(compiler, given):
    """Yields what is wrong with the lines that the compiler gives."""
    # nvcc passes the host's code to g++, which prints an unavailable template twice.
    is_nvcc = compiler.endswith('nvcc')
    flags = ['-std=c++20', f'-I{HERE.parents[2] / "include"}', *given]
    if is_nvcc:
        flags += ['-x', 'cu', '-c', '-o', os.devnull]
    else:
        flags += ['-Wall', '-Wextra', '-Wno-unused-variable', '-fsyntax-only', '-ferror-limit=0' if 'clang' in compiler else '-fmax-errors=0']
    output = subprocess.run([*compiler.split(), *flags, SOURCE], capture_output=True, text=True, env={**os.environ, 'LC_ALL': 'C'}).stderr
    expected = {n + line.lstrip().startswith('//'): m.groups()
                for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if (m := EXPECTED.search(line))}
    found = {}
    for path, line, kind, text in FOUND.findall(output):
        place = int(line) if pathlib.Path(path).resolve() == SOURCE else f'{path}:{line}'
        if not is_nvcc or (kind, text) not in found.get(place, []):
            found.setdefault(place, []).append((kind, text))
    print(f'{compiler}: {len(expected)} mistakes')
    for place in sorted({*expected, *found}, key=str):
        kind, text = expected.get(place, ('', ''))
        got = found.get(place, [])
        if len(got) != 1 or got[0][0] != kind or text not in got[0][1]:
            wanted = f'one {kind} with "{text}"' if kind else 'nothing'
            yield f'line {place}: expected {wanted}, got {got or "nothing"}'


SOURCE = pathlib.Path(sys.argv[1]).resolve()
of_other = sys.argv[2].startswith('as:')
given, compilers = flags_of(pathlib.Path(sys.argv[2][3:]).resolve()) if of_other else sys.argv[2].split(), dict.fromkeys(sys.argv[3:])
complaints = [complaint for compiler in compilers for complaint in complaints_of(compiler, given)]
print('\n'.join(complaints))
sys.exit(1 if complaints or not compilers else 0)
