# SPDX-License-Identifier: Apache-2.0
"""Each file of docs/decisions/ is one decision: a title, then status, context, choice and alternatives, in at most 25 lines. The index
docs/decisions.md has a line with the title of each."""
import re

import repository

PARTS = ('Status', 'Context', 'Choice', 'Alternatives')
LONGEST = 25

complaints = []
index = (repository.ROOT / 'docs/decisions.md').read_text()
listed = re.findall(r'^\* \[(.*)\]\(decisions/([\w-]+)\.md\)$', index, re.MULTILINE)
files = list(repository.files('docs/decisions', endings='.md'))
for path in files:
    text = path.read_text()
    title = re.match(r'# (.*)\n\n\* \*\*Status\.\*\* ', text)
    found = [part for part in re.findall(r'^\* \*\*(\w+)[.,]\*\*', text, re.MULTILINE) if part in PARTS]
    if title is None or found != list(PARTS):
        complaints.append(f'{repository.name(path)}: a decision is a title and then {", ".join(PARTS)}, in this order; here are {found}')
    elif (title.group(1), path.stem) not in listed:
        complaints.append(f'docs/decisions.md: there is no line "* [{title.group(1)}](decisions/{path.name})"')
    if text.count('\n') > LONGEST:
        complaints.append(f'{repository.name(path)}: {text.count(chr(10))} lines; at most {LONGEST}')
if len(listed) != len(files):
    complaints.append(f'docs/decisions.md has {len(listed)} lines for {len(files)} files')
repository.finish(complaints if files else ['docs/decisions/ is empty'])
