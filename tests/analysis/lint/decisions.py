# SPDX-License-Identifier: Apache-2.0
"""A page of docs/decisions/ is a subject: a title, then a section for each decision; or it is one decision with a title. Each decision has
context, choice and alternatives, in at most 25 lines. The index docs/decisions.md has a line with the title of each page."""
import re

import repository

PARTS = ['Context', 'Choice', 'Alternatives']
LONGEST = 25

complaints = []
index = (repository.ROOT / 'docs/decisions.md').read_text()
listed = re.findall(r'^\* \[(.*)\]\(decisions/([\w-]+)\.md\)$', index, re.MULTILINE)
files = list(repository.files('docs/decisions', endings='.md'))
for path in files:
    text = path.read_text()
    title = re.match(r'# (.*)\n', text)
    if title is None or (title.group(1), path.stem) not in listed:
        complaints.append(f'docs/decisions.md: there is no line "* [{title and title.group(1)}](decisions/{path.name})"')
    decisions = re.split(r'^## ', text, flags=re.MULTILINE)
    for decision in decisions[1:] or decisions:
        name, _, words = decision.partition('\n')
        found = [part for part in re.findall(r'^\* \*\*(\w+)[.,]\*\*', words, re.MULTILINE) if part in PARTS]
        if found != PARTS:
            complaints.append(f'{repository.name(path)}: {name}: a decision has {", ".join(PARTS)}, in this order; here are {found}')
        if words.count('\n') > LONGEST:
            complaints.append(f'{repository.name(path)}: {name}: {words.count(chr(10))} lines; at most {LONGEST}')
if len(listed) != len(files):
    complaints.append(f'docs/decisions.md has {len(listed)} lines for {len(files)} files')
repository.finish(complaints if files else ['docs/decisions/ is empty'])
