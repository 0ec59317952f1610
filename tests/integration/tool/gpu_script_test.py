# SPDX-License-Identifier: Apache-2.0
"""`scripts/gpu` accepts a relative and an absolute build folder. The programs that it runs find the exit cases and the libraries. Argument: the
source root."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])

with tempfile.TemporaryDirectory(prefix='runnel-gpu-') as folder:
    build = pathlib.Path(folder) / 'build'
    for name in ('tests/conformance/conformance', 'tests/conformance/exit_cases', 'tools/runnel'):
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).write_text('#!/bin/sh\n[ -x "$RUNNEL_EXIT_CASES" ] && [ -d "${LD_LIBRARY_PATH%%:*}" ]\n')
        (build / name).chmod(0o755)
    (build / 'lib').mkdir()
    for given in (str(build), os.path.relpath(build, SOURCE)):
        for results in ([], [str(pathlib.Path(folder) / 'results')]):
            done = subprocess.run([SOURCE / 'scripts/gpu', given, *results], cwd='/', env={**os.environ, 'parts': 'suite'}, capture_output=True,
                                  text=True, timeout=120)
            if done.returncode != 0 or 'suite          passed' not in done.stdout or not (pathlib.Path(results[0]) if results else build / 'results').is_dir():
                print(done.stdout, done.stderr, f'FAILED: scripts/gpu {given} {results} returned {done.returncode}', sep='\n')
                sys.exit(1)
            print(f'ok: scripts/gpu {given} {" ".join(results)}')
