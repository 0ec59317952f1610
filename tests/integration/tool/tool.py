# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share: running the command and checking its results."""
import os
import pathlib
import subprocess
import sys
import tempfile

RUNNEL = os.path.abspath(sys.argv[1])  # Meson may name it from the build folder
LIMIT_S = 120


def run(*arguments, environment=None, **options):
    return subprocess.run([RUNNEL, *map(str, arguments)], capture_output=True, timeout=LIMIT_S,
                          env={**os.environ, **(environment or {})}, **options)


def has_device():
    return run('info', '--why').stdout.startswith(b'There is a device')


def skip(reason):
    print('skipped: ' + reason)
    sys.exit(77)


def expect(condition, what):
    if not condition:
        print('FAILED: ' + what)
        sys.exit(1)
    print('ok: ' + what)


def scratch():
    """A context with a new directory, which is removed at the end."""
    return tempfile.TemporaryDirectory(prefix='runnel-test-')


def path(directory, name):
    return pathlib.Path(directory) / name
