# SPDX-License-Identifier: Apache-2.0
"""Faults that a model check must find: tests/analysis/models/faults.py lists them."""
import os
import sys

import tree

sys.path.insert(0, str(tree.ROOT / 'tests/analysis/models'))
from faults import FAULTS

SCHEDULES = '100000'


def find(copy, fault):
    """What the checker says, and whether the check failed as it should."""
    file, before, after, program, check = fault
    with copy.changed(tree.Replacement(file, before, after)) as complaint:
        if complaint:
            return complaint, False
        folder = copy.set_up('build', '-Dgpu_backend=host', '-Dtools=disabled', '-Dkokkos=disabled')
        model = f'tests/analysis/models/model_{program}'
        if not tree.build(folder, model):
            return 'does not compile', False
        status, output = tree.run([folder / model, check, '--schedules', SCHEDULES, '--expect-failure'], patience=600)
        return output.strip(), status == 0


def main(options):
    chosen = options.numbers or range(len(FAULTS))
    copy = tree.Tree(options.work)
    missed = 0
    for number in chosen:
        said, found = find(copy, FAULTS[number])
        missed += not found
        file, before, after = FAULTS[number][:3]
        print(f'{number:2} {"found" if found else "NOT FOUND"}: {os.path.basename(file)}: {before.strip()!r} -> {after.strip()!r}\n   {said}', flush=True)
    print(f'{len(list(chosen)) - missed} found, {missed} not found')
    sys.exit(1 if missed else 0)
