# SPDX-License-Identifier: Apache-2.0
"""Defects that were mended, put back: a random program must find each. A patch's lines `Run:` name the backend, the environment and the arguments of a run."""
import re
import sys
import time

import tree

PATCHES = tree.ROOT / 'tests/stress/random/put_back'
PROGRAM = 'tests/stress/random/random_programs'


def prepare(copy, backend):
    """The program that runs random programs, with the fault in it, and what it needs in its environment."""
    folder = copy.set_up('build-' + backend, '-Dgpu_backend=' + backend, '-Dtools=enabled')
    targets, environment = [PROGRAM], {}
    if backend != 'host':
        targets += [name for name in ninja_targets(folder) if re.fullmatch(r'tests/support/standin/lib\w+\.so\.\d+', name)]
        environment = {'LD_LIBRARY_PATH': str(folder / 'tests/support/standin'), 'RUNNEL_STANDIN': '1'}
    if not tree.build(folder, *targets):
        raise RuntimeError(f'{folder} does not compile')
    return folder / PROGRAM, environment


def ninja_targets(folder):
    return [line.split(':')[0] for line in tree.run(['ninja', '-C', folder, '-t', 'targets', 'all'])[1].splitlines()]


def is_found(copy, patch, options):
    for line in re.findall(r'^Run: (.*)$', patch.text, re.MULTILINE):
        backend, *words = line.split()
        start = time.monotonic()
        program, environment = prepare(copy, backend)
        settings = dict(word.split('=', 1) for word in words if not word.startswith('--'))
        arguments = ['--patience', '10', '--seed', options.seed, '--count', options.count, *(['--shrink', '--repeats', '3'] if options.shrink else []),
                     *(word for word in words if word.startswith('--'))]
        status, output = tree.run([program, *arguments], {**environment, **settings})
        first = next((each for each in output.splitlines() if each.startswith('seed ')), 'not found')
        shrunk = next((each for each in output.splitlines() if each.startswith(('shrunk', 'alone'))), '')
        print(f'{patch.path.stem} [{line}]: {first} {shrunk} ({time.monotonic() - start:.0f} s)', flush=True)
        if options.shrink:
            (copy.folder / (patch.path.stem + '.txt')).write_text(output)
        if status != 0:
            return True
    return False


def main(options):
    copy = tree.Tree(options.work)
    patches = [tree.Patch(path) for path in sorted(PATCHES.glob('*.patch')) if path.name.startswith(options.only)]
    missed = []
    for patch in patches:
        with copy.changed(patch) as complaint:
            if complaint:
                print(f'{patch.path.name}: {complaint}')
            if complaint or not is_found(copy, patch, options):
                missed.append(patch.path.stem)
    print(f'{len(patches) - len(missed)} of {len(patches)} found' + (': not ' + ', '.join(missed) if missed else ''))
    sys.exit(1 if missed else 0)
