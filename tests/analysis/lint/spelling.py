# SPDX-License-Identifier: Apache-2.0
"""codespell finds no misspelt word. .codespellrc lists what is spelt so on purpose."""
import shutil
import subprocess

import repository

if shutil.which('codespell') is None:
    repository.skip('codespell is not installed')
names = [name for name in (*repository.OWN_DIRECTORIES, 'docs', 'packaging', 'interop', 'python', 'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md')
         if (repository.ROOT / name).exists()]
done = subprocess.run(['codespell', *names], cwd=repository.ROOT, capture_output=True, text=True)
repository.finish(done.stdout.splitlines())
