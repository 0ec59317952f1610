# SPDX-License-Identifier: Apache-2.0
"""Puts a defect back that was mended, and expects the random programs to find it.

Each patch here undoes a mend. Its lines `Run:` name the backend, the environment and the arguments of a run. For each patch this script
copies the sources, applies the patch, builds, and runs programs until one fails.

    run.py --work FOLDER [--count 20000] [--only 03] [--shrink]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
COPIED = ['backends', 'include', 'interop', 'packaging', 'src', 'tests', 'tools', 'docs', 'meson.build', 'meson_options.txt', 'README.md', 'LICENSE']


def call(*command, **options):
    return subprocess.run(command, check=True, **options)


def prepare(work, backend):
    """A build folder for the copy of the sources."""
    folder = work / ('build-' + backend)
    if not (folder / 'build.ninja').exists():
        call('meson', 'setup', folder, work / 'source', '-Dgpu_backend=' + backend, '-Dexamples=disabled', '-Dbenchmarks=disabled', '-Dtools=enabled',
             stdout=subprocess.DEVNULL)
    return folder


def copy_sources(work):
    for name in COPIED:
        target = work / 'source' / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)


def run(folder, settings, arguments):
    """The program's output, and whether a program has failed."""
    target = ['tests/stress/random/random_programs']
    standin = folder / 'tests/support/standin'
    environment = dict(os.environ, **dict(each.split('=', 1) for each in settings))
    if folder.name != 'build-host':
        target += [path for path in ninja_targets(folder) if re.fullmatch(r'tests/support/standin/lib\w+\.so\.\d+', path)]
        environment.update(LD_LIBRARY_PATH=str(standin), RUNNEL_STANDIN='1')
    call('ninja', '-C', folder, *target, stdout=subprocess.DEVNULL)
    done = subprocess.run([folder / target[0], '--patience', '10', *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout, done.returncode != 0


def ninja_targets(folder):
    return [line.split(':')[0] for line in subprocess.run(['ninja', '-C', folder, '-t', 'targets', 'all'], capture_output=True, text=True).stdout.splitlines()]


def try_patch(patch, options):
    text = patch.read_text()
    call('patch', '--quiet', '-p1', '-d', options.work / 'source', '-i', patch)
    try:
        for line in re.findall(r'^Run: (.*)$', text, re.MULTILINE):
            backend, *words = line.split()
            settings = [word for word in words if not word.startswith('--')]
            arguments = ['--seed', str(options.seed), '--count', str(options.count)] + (['--shrink', '--repeats', '3'] if options.shrink else []) + [
                word for word in words if word.startswith('--')]
            start = time.monotonic()
            output, found = run(prepare(options.work, backend), settings, arguments)
            first = next((each for each in output.splitlines() if each.startswith('seed ')), 'not found')
            shrunk = next((each for each in output.splitlines() if each.startswith(('shrunk', 'alone'))), '')
            print(f'{patch.stem} [{line}]: {first} {shrunk} ({time.monotonic() - start:.0f} s)', flush=True)
            if options.shrink:
                (options.work / (patch.stem + '.txt')).write_text(output)
            if found:
                return True
    finally:
        call('patch', '--quiet', '--reverse', '-p1', '-d', options.work / 'source', '-i', patch)
    return False


parser = argparse.ArgumentParser()
parser.add_argument('--work', type=pathlib.Path, required=True)
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--count', type=int, default=20000)
parser.add_argument('--only', default='')
parser.add_argument('--shrink', action='store_true')
options = parser.parse_args()
copy_sources(options.work)
patches = [patch for patch in sorted(HERE.glob('*.patch')) if patch.name.startswith(options.only)]
missed = [patch.stem for patch in patches if not try_patch(patch, options)]
print(f'{len(patches) - len(missed)} of {len(patches)} found' + (': not ' + ', '.join(missed) if missed else ''))
sys.exit(1 if missed else 0)
