# SPDX-License-Identifier: Apache-2.0
"""The patches of tests/stress/random/put_back, which undo mends, apply to the sources as they are."""
import subprocess

import repository


def applies(patch):
    command = ['patch', '--dry-run', '--force', '-p1', '-d', repository.ROOT, '-i', patch]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


repository.finish([f'{repository.name(patch)}: does not apply: make it anew'
                   for patch in sorted((repository.ROOT / 'tests/stress/random/put_back').glob('*.patch')) if not applies(patch)])
