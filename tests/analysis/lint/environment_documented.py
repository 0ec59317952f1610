# SPDX-License-Identifier: Apache-2.0
"""docs/environment.md lists each environment variable that runnel reads, and no RUNNEL_ variable that runnel does not read."""
import re

import repository

page = (repository.ROOT / 'docs/environment.md').read_text()
read = {}
for path in repository.files('include', 'src', 'backends', 'tools', 'python/runnel', endings=('.cpp', '.hpp', '.cu', '.py')):
    text = path.read_text()
    for variable in re.findall(r'"(RUNNEL_[A-Z][A-Z_]*|[A-Z]+_(?:MAX|HW)_[A-Z_]+)"', text):
        read.setdefault(variable, repository.name(path))
complaints = [f'{where}: {variable} is not in docs/environment.md' for variable, where in sorted(read.items()) if f'`{variable}`' not in page]
complaints += [f'docs/environment.md: nothing reads {variable}'
               for variable in sorted(set(re.findall(r'`(RUNNEL_[A-Z_]+)`', page))) if variable not in read]
repository.finish(complaints)
