# SPDX-License-Identifier: Apache-2.0
"""Each link from one page of the repository to another leads to an existing file and an existing heading. docs/index.md links to each page
of docs/. docs/examples.md and a guide link to each example. CONTRIBUTING.md names each rule of tests/analysis/lint/."""
import re

import repository

NOT_TEXT = re.compile(r'^```.*?^```$|<!--.*?-->', re.MULTILINE | re.DOTALL)
LINK = re.compile(r'\[[^]]*\]\(([^)\s]+)\)')


def anchor(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r'[^\w\- ]', '', heading.strip().lower()).replace(' ', '-')


def anchors(page):
    return {anchor(heading) for heading in re.findall(r'^#+ (.*)', NOT_TEXT.sub('', page.read_text()), re.MULTILINE)}


root = repository.ROOT
pages = [*sorted(root.glob('*.md')), *repository.files('docs', *repository.OWN_DIRECTORIES, endings='.md')]
complaints, links = [], {}
for page in pages:
    links[page] = [link for link in LINK.findall(NOT_TEXT.sub('', page.read_text())) if not re.match('[a-z]+:', link)]
    for link in links[page]:
        path, _, heading = link.partition('#')
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or root not in target.parents:
            complaints.append(f'{repository.name(page)}: {link}: there is no such file')
        elif heading and heading not in anchors(target):
            complaints.append(f'{repository.name(page)}: {link}: there is no such heading')
index = root / 'docs/index.md'
complaints += [f'docs/index.md has no link to {page.name}' for page in pages
               if page.parent == index.parent and page != index and page.name not in links[index]]
# What several examples share is no example.
examples = [path for path in sorted((root / 'examples').rglob('*.c*')) if path.name not in ('scale.cu', 'scale_host.cpp')]
for example in examples:
    linking = {page.name for page in pages for link in links[page] if (page.parent / link.partition('#')[0]).resolve() == example}
    if 'examples.md' not in linking:
        complaints.append(f'docs/examples.md has no link to {repository.name(example)}')
    if not linking - {'examples.md', 'README.md'}:
        complaints.append(f'no guide has a link to {repository.name(example)}')
rules = (root / 'CONTRIBUTING.md').read_text()
complaints += [f'CONTRIBUTING.md does not list the rule tests/analysis/lint/{script.name}' for script in repository.files('tests/analysis/lint', endings='.py')
               if script.name not in ('functions.py', 'repository.py') and f'`{script.name}`' not in rules]
print(f'{sum(map(len, links.values()))} links in {len(pages)} pages')
repository.finish(complaints)
