# SPDX-License-Identifier: Apache-2.0
"""The CUDA and HIP backends share at least 90 % of their lines. Shared lines count once, and the two tables do not count.

A vendor's table is its runtime.hpp with the headers of either vendor's folder that it includes. A table should contain only aliases. So the
rule also prints how many lines of the tables are functions, and the share that would be left if those lines counted.
"""
import re

import repository

LEAST = 90
SHARED = repository.ROOT / 'backends/cuda_hip'
VENDORS = [repository.ROOT / 'backends' / name for name in ('cuda', 'hip')]
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)


def code_lines(path):
    """The lines that contain more than comments."""
    text = COMMENT_OR_STRING.sub(lambda match: match.group(1) or '', path.read_text())
    return [line for line in text.splitlines() if line.strip()]


def included(path, found):
    """The file and the headers of the vendors' folders that it includes."""
    found.add(path)
    for name in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.MULTILINE):
        header = (path.parent / name).resolve()
        if header.parent in VENDORS and header not in found:
            included(header, found)
    return found


def written_out(lines):
    """The number of a table's lines that belong to functions and classes of more than one line, which are not aliases."""
    count = 0
    block = []
    for line in lines:
        if re.match(r'\s*#|(\} *)?namespace\b|\}$', line) and not block:
            continue
        block.append(line)
        text = '\n'.join(block)
        if text.count('{') == text.count('}') and re.search(r'[;}]\s*$', line):
            if len(block) > 1 and re.search(r'\)[^;{]*\{|^(template|class|struct)\b', text):
                count += len(block)
            block = []
    return count


for folder in (SHARED, *VENDORS):
    if not folder.is_dir():
        repository.skip(f'there is no {repository.name(folder)}')

shared = sum(len(code_lines(path)) for path in repository.files('backends/cuda_hip', endings=('.hpp', '.cpp')))
tables = set()
for folder in VENDORS:
    included(folder / 'runtime.hpp', tables)
sources = [path for folder in VENDORS for path in repository.files(repository.name(folder), endings=('.hpp', '.cpp'))]
apart = {path: len(code_lines(path)) for path in sources if path not in tables}
adapted = {path: written_out(code_lines(path)) for path in sorted(tables)}

print(f'shared text: {shared} lines')
for path in sorted(tables):
    print(f'table {repository.name(path)}: {len(code_lines(path))} lines, {adapted[path]} of them in functions of several lines')
for path, lines in apart.items():
    print(f'one vendor, no table: {repository.name(path)}: {lines} lines')
share = 100 * shared / max(1, shared + sum(apart.values()))
strict = 100 * shared / max(1, shared + sum(apart.values()) + sum(adapted.values()))
print(f'shared: {share:.1f} % without the tables ({strict:.1f} % if the tables\' functions of several lines counted)')
if shared < 200:
    repository.finish([f'only {shared} lines of shared text were counted: this rule no longer understands the folders'])
repository.finish([] if share >= LEAST else [f'{share:.1f} % of the lines are shared; at least {LEAST} % should be'])
