# SPDX-License-Identifier: Apache-2.0
"""Each function of backend.hpp is defined in files of the same name in all backends."""
import re

import repository

interface = (repository.ROOT / 'backends/backend.hpp').read_text()
functions = re.findall(r'^(?:\[\[nodiscard\]\] )?(?:[\w:]+(?: \w+)?[*&]* \*?)(\w+)\([^;]*?\) noexcept;', interface, re.MULTILINE)
complaints = []
if len(functions) < 50:
    complaints.append(f'only {len(functions)} functions were found in backend.hpp: this rule no longer understands the header')


def places(folder):
    """The name of the file in `folder` that defines each function."""
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
print(f'{len(functions)} functions of backend.hpp')
repository.finish(complaints)
