# SPDX-License-Identifier: Apache-2.0
"""Sources are formatted by clang-format 14, the version of Debian 12. Other versions format differently."""
import re
import shutil
import subprocess

import repository

tool = None
for candidate in ('clang-format-14', 'clang-format'):
    if shutil.which(candidate):
        said = subprocess.run([candidate, '--version'], capture_output=True, text=True).stdout
        if re.search(r'version 14\.', said):
            tool = candidate
            break
if tool is None:
    repository.skip('clang-format 14 is not installed')

paths = list(repository.files(endings=('.hpp', '.cpp', '.cu')))


def formatted(files):
    return subprocess.run([tool, '--style=file', *files], capture_output=True, text=True, check=True, cwd=repository.ROOT).stdout


complaints = []
# One process for all files: to start one for each takes longer than the formatting.
if formatted(paths) != ''.join(path.read_text() for path in paths):
    complaints = [f'{repository.name(path)}: not formatted; run {tool} -i on it' for path in paths if formatted([path]) != path.read_text()]
print(f'{len(paths)} files')
repository.finish(complaints)
