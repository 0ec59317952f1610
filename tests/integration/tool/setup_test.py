# SPDX-License-Identifier: Apache-2.0
"""If a tool is too old or installed twice, the setup says so in one line with advice. Arguments: the source root, Meson's command."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE, MESON = pathlib.Path(sys.argv[1]), sys.argv[2]


def fake(folder, name, text):
    path = pathlib.Path(folder) / name
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)


def expect_line(command, words, path='', environment=None):
    environment = {**os.environ, **(environment or {}), 'PATH': f'{path}:{os.environ["PATH"]}'}
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=120)
    lines = (done.stdout + done.stderr).splitlines()
    hits = [line for line in lines if all(word in line for word in words)]
    if done.returncode == 0 or not hits:
        print(done.stdout, done.stderr, f'FAILED: {command} returned {done.returncode}, and no line of its output has {words}', sep='\n')
        sys.exit(1)
    print(f'ok: {hits[0]}')


with tempfile.TemporaryDirectory(prefix='runnel-setup-') as folder:
    fake(folder, 'meson', 'echo 0.61.2')
    expect_line(['bash', '-eu', '-c', '. scripts/setup.sh; set_up_build /nonexistent'], ['Meson 0.61.2 is too old', '1.0.1', 'pip install meson'], folder)

with tempfile.TemporaryDirectory(prefix='runnel-setup-') as folder:
    # A compiler that claims to be g++ 11.
    fake(folder, 'old-g++', """for word; do
  case $word in
    --version) echo 'old-g++ (Debian 11.4.0-1) 11.4.0'; echo 'Copyright (C) 2021 Free Software Foundation, Inc.'; exit 0;;
    -dM) exec g++ "$@" -U__GNUC__ -D__GNUC__=11 -U__GNUC_MINOR__ -D__GNUC_MINOR__=4 -U__GNUC_PATCHLEVEL__ -D__GNUC_PATCHLEVEL__=0;;
  esac
done
exec g++ "$@\"""")
    expect_line([MESON, 'setup', f'{folder}/build', '-Dgpu_backend=host'], ['too old', '11.4', 'g++ 12 or clang 14'], environment={'CXX': f'{folder}/old-g++'})
    expect_line([MESON, 'setup', f'{folder}/none', '-Dgpu_backend=host'], ['compiler'], environment={'CXX': 'no-such-compiler'})
    # A CUDA toolkit, and an nvcc of another toolkit.
    has_cuda = subprocess.run([sys.executable, SOURCE / 'backends/cuda/find_cudart.py'], capture_output=True, text=True).stdout.strip()
    if has_cuda:
        fake(folder, 'nvcc', 'echo "Cuda compilation tools, release 7.5, V7.5.17"')
        os.environ.pop('CUDA_PATH', None)
        expect_line([MESON, 'setup', f'{folder}/two', '-Dgpu_backend=cuda'], ['Two CUDA toolkits', '7.5', 'Set CUDA_PATH'], folder)
