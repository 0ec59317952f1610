# SPDX-License-Identifier: Apache-2.0
"""backends/cuda/runtime.hpp and backends/hip/runtime.hpp list the same names in the same order, on each of HIP's platforms."""
import difflib
import itertools
import re

import repository

CUDA = repository.ROOT / 'backends/cuda/runtime.hpp'
HIP = repository.ROOT / 'backends/hip/runtime.hpp'
NAME = re.compile(r'^(?:using (\w+) =|(?:template <.*> )?(?:\[\[\w+\]\] )?(?:inline|constexpr|struct)\b[^=({;]*?(?:\(\*(\w+)\)|(\w+)\s*(?:[={;]|\((?!\*))))')


def holds(condition, nvidia, old):
    """Whether an #if condition is true. It may test the platform or the runtime's version, and nothing else."""
    if '__HIP_PLATFORM_NVIDIA__' in condition:
        return nvidia != bool(re.match(r'#\s*ifndef|.*!', condition))
    return old if '<' in condition else not old


def lines_on(path, nvidia, old):
    """The lines that remain for a platform and a version."""
    chains = []  # for each open #if: whether its current branch is taken, and whether any branch was
    for line in path.read_text().splitlines():
        if re.match(r'#\s*if', line):
            seen = holds(line, nvidia, old)
            chains.append([seen, seen])
        elif re.match(r'#\s*elif', line):
            seen = not chains[-1][1] and holds(line, nvidia, old)
            chains[-1] = [seen, chains[-1][1] or seen]
        elif re.match(r'#\s*else', line):
            chains[-1] = [not chains[-1][1], True]
        elif re.match(r'#\s*endif', line):
            chains.pop()
        elif all(seen for seen, _ in chains):
            yield line


def names(path, nvidia, old):
    inside = False
    found = []
    for line in lines_on(path, nvidia, old):
        if line.startswith('namespace') and line.rstrip().endswith('rt {'):
            inside = True
        elif line.startswith('}') and 'namespace' in line:
            inside = False
        elif inside and (match := NAME.match(line)):
            found.append(next(filter(None, match.groups())))
    return found


for table in (CUDA, HIP):
    if not table.exists():
        repository.skip(f'there is no {repository.name(table)}')

complaints = []
cuda = names(CUDA, nvidia=True, old=False)
if len(cuda) < 20:
    complaints.append(f'only {len(cuda)} names were recognised in {repository.name(CUDA)}: this rule no longer understands the table')
for nvidia, old in itertools.product((False, True), repeat=2):
    where = f'HIP platform {"nvidia" if nvidia else "amd"}, {"an old" if old else "a new"} runtime'
    complaints += [f'{line} ({where})' for line in difflib.unified_diff(cuda, names(HIP, nvidia, old), 'cuda', 'hip', lineterm='', n=0)]
print(f'{len(cuda)} names')
repository.finish(complaints)
