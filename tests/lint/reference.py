# SPDX-License-Identifier: Apache-2.0
"""Doxygen makes the reference of the public headers without warnings, so every public name is documented."""
import os
import shutil
import subprocess
import tempfile

import repository

if shutil.which('doxygen') is None:
    repository.skip('doxygen is not installed')
with tempfile.TemporaryDirectory() as folder:
    settings = (repository.ROOT / 'docs/Doxyfile').read_text() + f'OUTPUT_DIRECTORY = {folder}\n'
    done = subprocess.run(['doxygen', '-'], input=settings, cwd=repository.ROOT, capture_output=True, text=True, env=os.environ | {'LANG': 'C'})
    pages = sum(name.endswith('.html') for _, _, names in os.walk(folder) for name in names)
complaints = [line for line in done.stderr.splitlines() if line]
if done.returncode != 0 and not complaints:
    complaints = [f'doxygen ended with {done.returncode}']
print(f'{pages} pages')
repository.finish(complaints if pages else complaints + ['doxygen wrote no page'])
