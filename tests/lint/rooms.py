# SPDX-License-Identifier: Apache-2.0
"""Includes go down only: the folders of src/ are floors, and a file includes files of its own floor and of those below it.

src/ and backends/ name a file of src/ by its path from there, so that the floor is seen. A backend stands beside the ground floor: it uses
nothing of src/ but that.
"""
import re

import repository

FLOORS = ['base', 'device', 'stream', 'memory', 'copy', 'overlap']
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)

complaints = []
arrows = set()
for path in repository.files('src', 'backends', endings=('.cpp', '.hpp')):
    relative = path.relative_to(repository.ROOT)
    own = relative.parts[1] if relative.parts[0] == 'src' else 'base'
    if own not in FLOORS:
        complaints.append(f'{repository.name(path)}: no floor is named {own!r}')
        continue
    for name in INCLUDE.findall(path.read_text()):
        target = name.split('/')[0]
        if relative.parts[0] == 'backends' and target not in FLOORS:
            continue  # a header of the backends
        if target not in FLOORS:
            complaints.append(f'{repository.name(path)} includes "{name}": write its path from src/')
        elif FLOORS.index(target) > FLOORS.index(own):
            complaints.append(f'{repository.name(path)} includes "{name}", which is above it: {" < ".join(FLOORS)}')
        elif target != own and relative.parts[0] == 'src':
            arrows.add((own, target))
for floor in FLOORS:
    if not any((repository.ROOT / 'src' / floor).glob('*.cpp')):
        complaints.append(f'src/{floor}/ has no source: this rule no longer understands the folders')
print(f'{len(FLOORS)} floors, {len(arrows)} arrows between them')
repository.finish(complaints)
