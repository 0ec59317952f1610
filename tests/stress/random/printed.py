# SPDX-License-Identifier: Apache-2.0
"""Compiles printed random programs against the public headers, with warnings, and runs them."""
import pathlib
import subprocess
import sys
import tempfile

split = sys.argv.index('--')
program, library, *headers = sys.argv[1:split]
compiler = sys.argv[split + 1:]
# Most kinds of operations; several threads; threads that end.
PROGRAMS = [['--seed', '1', '--operations', '60', '--threads', '1', '--small'], ['--seed', '237', '--operations', '60', '--threads', '4', '--small']]
with tempfile.TemporaryDirectory() as work:
    for arguments in PROGRAMS:
        source = pathlib.Path(work) / 'printed.cpp'
        source.write_text(subprocess.run([program, '--print', *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout)
        built = source.with_suffix('')
        subprocess.run([*compiler, '-std=c++20', '-Wall', '-Wextra', *['-I' + folder for folder in headers], source, '-o', built, library, '-pthread',
                        '-Wl,-rpath,' + str(pathlib.Path(library).parent)], check=True)
        subprocess.run([built], check=True, timeout=60)
