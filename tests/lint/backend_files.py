# SPDX-License-Identifier: Apache-2.0
"""A function of the waist is defined in the file of the same name in every backend."""
import re

import repository

waist = (repository.ROOT / 'include/runnel/detail/backend.hpp').read_text()
functions = re.findall(r'^(?:\[\[nodiscard\]\] )?(?:[\w:]+(?: \w+)?[*&]* \*?)(\w+)\([^;]*?\) noexcept;', waist, re.MULTILINE)
complaints = []
if len(functions) < 50:
    complaints.append(f'only {len(functions)} functions were found in the waist: this rule no longer understands it')


def places(folder):
    """The file of `folder` that defines each function of the waist."""
    found = {}
    for path in sorted((repository.ROOT / folder).glob('*.cpp')):
        text = path.read_text()
        for function in functions:
            if re.search(rf'^[\w:]+(?: \w+)?[*&]* \*?{function}\([^;{{]*\) noexcept\s*{{', text, re.MULTILINE):
                found[function] = path.name
    return found


shared, host = places('backends/cuda_hip'), places('backends/host')
for function in functions:
    if function not in shared or function not in host:
        complaints.append(f'{function}: not found in {"backends/cuda_hip" if function not in shared else "backends/host"}')
    elif shared[function] != host[function]:
        complaints.append(f'{function}: in backends/cuda_hip/{shared[function]}, but in backends/host/{host[function]}')
print(f'{len(functions)} functions of the waist')
repository.finish(complaints)
