# SPDX-License-Identifier: Apache-2.0
"""Sources are formatted by the version of clang-format below; other versions format differently. `pip install clang-format==VERSION` has it, and
scripts/setup.sh puts it into build-format/."""
import pathlib
import shutil
import subprocess
import sys

import repository

VERSION = '20.1.8'
OWN = repository.ROOT / 'build-format/bin/clang-format'

if '--version' in sys.argv:
    print(VERSION)
    raise SystemExit
tool = next((str(candidate) for candidate in (OWN, shutil.which('clang-format')) if candidate and pathlib.Path(candidate).exists() and
             f'version {VERSION}' in subprocess.run([candidate, '--version'], capture_output=True, text=True).stdout), None)
if tool is None:
    repository.skip(f'clang-format {VERSION} is not installed: . scripts/setup.sh and need_clang_format')

paths = list(repository.files(endings=('.hpp', '.cpp', '.cu')))


def formatted(files):
    return subprocess.run([tool, '--style=file', *files], capture_output=True, text=True, check=True, cwd=repository.ROOT).stdout


complaints = []
# One process for all files: to start one for each takes longer than the formatting.
if formatted(paths) != ''.join(path.read_text() for path in paths):
    complaints = [f'{repository.name(path)}: not formatted; run {tool} -i on it' for path in paths if formatted([path]) != path.read_text()]
print(f'{len(paths)} files')
repository.finish(complaints)
