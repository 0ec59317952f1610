# SPDX-License-Identifier: Apache-2.0
"""The folders of src/ are ordered like floors. A file includes only files of its own folder and of the folders below it.

Files in src/ and backends/ include a file of src/ by its path from src/, so that the include shows the folder. A backend uses only the lowest
folder of src/. backend.hpp and ccl.hpp, in backends/, are the interface between the two.
"""
import re

import repository

FLOORS = ['base', 'checker', 'device', 'capture', 'timeline', 'slot', 'function', 'stream', 'observe', 'memory', 'copy', 'overlap', 'graph', 'comm']
INTERFACE = {'backend.hpp', 'ccl.hpp'}
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)

complaints = []
arrows = set()
for path in repository.files('src', 'backends', endings=('.cpp', '.hpp')):
    relative = path.relative_to(repository.ROOT)
    own = relative.parts[1] if relative.parts[0] == 'src' else 'base'
    if own not in FLOORS:
        complaints.append(f'{repository.name(path)}: {own!r} is no folder of the list')
        continue
    for name in INCLUDE.findall(path.read_text()):
        target = name.split('/')[0]
        if name in INTERFACE or (relative.parts[0] == 'backends' and target not in FLOORS):
            continue
        if target not in FLOORS:
            complaints.append(f'{repository.name(path)} includes "{name}": write its path from src/')
        elif FLOORS.index(target) > FLOORS.index(own):
            complaints.append(f'{repository.name(path)} includes "{name}", which is in a higher folder: {" < ".join(FLOORS)}')
        elif target != own and relative.parts[0] == 'src':
            arrows.add((own, target))
for floor in FLOORS:
    if not any((repository.ROOT / 'src' / floor).glob('*.cpp')):
        complaints.append(f'src/{floor}/ has no source: this rule no longer understands the folders')
print(f'{len(FLOORS)} folders, {len(arrows)} dependencies between them')
repository.finish(complaints)
