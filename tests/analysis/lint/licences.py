# SPDX-License-Identifier: Apache-2.0
"""Each file has a licence and an owner (`reuse lint`; .reuse/dep5 names them), and each source and script says so itself in its first two lines."""
import shutil
import subprocess

import repository

EXTRA = ['meson.build', '.editorconfig', '.clang-tidy', 'scripts/demo', 'scripts/test', 'scripts/docs', 'scripts/results', '.ci/run']
LINE = 'SPDX-License-Identifier: Apache' + '-2.0'  # in two parts, so that the tool does not read it as the licence of this file

complaints = [f'{repository.name(path)}: no "{LINE}" in the first two lines'
              for path in [*repository.files(), *(repository.ROOT / name for name in EXTRA)]
              if not any(LINE in line for line in path.read_text().splitlines()[:2])]
if complaints:
    repository.finish(complaints)
if shutil.which('reuse') is None:
    repository.skip('reuse is not installed')
done = subprocess.run(['reuse', 'lint', '--quiet'], cwd=repository.ROOT, capture_output=True, text=True)
if done.returncode != 0:
    print(subprocess.run(['reuse', 'lint'], cwd=repository.ROOT, capture_output=True, text=True).stdout)
repository.finish(['reuse lint: see above'] if done.returncode != 0 else [])
