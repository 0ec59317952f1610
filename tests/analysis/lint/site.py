# SPDX-License-Identifier: Apache-2.0
"""Doxygen writes the site (docs/Doxyfile) without warnings, so every public name is documented. Each link within the site leads to a file
and a place that are there, the search finds each guide and leads to its sections, it finds each task of the first page and some words that
users look for, each header is in a topic, each topic leads to examples in guides, no signature shows a name of detail, and no page shows raw marks."""
import collections
import html.parser
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

import repository

HIDDEN = re.compile(r'detail::\w+|RUNNEL_ABI|RUNNEL_REFUSED')
# What a reader sees where Doxygen took a part of a guide for something else.
GARBLED = re.compile(r'\\ilinebr|</\w+>|<(?:td|tr|code|p)\b|\*\*|\b[\w-]+\.md\b|[\u2018\u2019\u201c\u201d\u2013\u2014]')
# Headers of which nobody would look for a single name.
WITHOUT_TOPIC = ('runnel.hpp',)


class Page(html.parser.HTMLParser):
    """The places of a page, where its links lead, its words, and those of them that are no code."""

    def __init__(self, text):
        super().__init__()
        self.places, self.targets, self.words, self.prose, self.within = set(), [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        code = tag in ('code', 'pre', 'script', 'style') or values.get('class') == 'fragment'
        if code or tag in self.within:
            self.within.append(tag)
        self.places.update(values[key] for key in ('id', 'name') if values.get(key))
        self.targets += [values[key] for key in ('href', 'src', 'data') if values.get(key)]

    def handle_endtag(self, tag):
        if self.within[-1:] == [tag]:
            self.within.pop()

    def handle_data(self, data):
        self.words.append(data)
        if not self.within:
            self.prose.append(data)


def write(folder):
    """Writes the site. Returns what Doxygen complains about."""
    settings = (repository.ROOT / 'docs/Doxyfile').read_text() + f'OUTPUT_DIRECTORY = {folder}\n'
    done = subprocess.run(['doxygen', '-'], input=settings, cwd=repository.ROOT, capture_output=True, text=True, env=os.environ | {'LANG': 'C'})
    complaints = [line for line in done.stderr.splitlines() if line]
    if not complaints and done.returncode == 0:
        subprocess.run([sys.executable, repository.ROOT / 'docs/site/search.py', pathlib.Path(folder) / 'html'], check=True)
    return complaints or ([f'doxygen ended with {done.returncode}'] if done.returncode else [])


def broken_links(folder, pages):
    for name, page in pages.items():
        for target in page.targets:
            url = urllib.parse.urlsplit(target)
            if url.scheme or url.netloc:
                continue
            file, place = urllib.parse.unquote(url.path) or name, urllib.parse.unquote(url.fragment)
            if not (folder / file).exists():
                yield f'{name}: {target}: there is no such file'
            elif place and file in pages and place not in pages[file].places:
                yield f'{name}: {target}: there is no such place'


def filter_of_site():
    """docs/site/filter.py as a module."""
    spec = importlib.util.spec_from_file_location('filter', repository.ROOT / 'docs/site/filter.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_search(folder):
    """What the search knows: [title, heading, address, text] of each section."""
    return json.loads((folder / 'find-index.js').read_text().removeprefix('window.findIndex = ').removesuffix(';\n'))


def led_astray(folder):
    """Sections of guides to which the search does not lead."""
    of_site = filter_of_site()
    guides = {of_site.page_label(path) for path in (repository.ROOT / 'docs').glob('*.md')}
    for title, heading, address, text in in_search(folder):
        page, _, place = address.partition('#')
        guide = page.removesuffix('.html')
        if guide in guides and heading and place != f'{guide}_{of_site.anchor(heading)}':
            yield f'the search leads from "{title}: {heading}" to {address}'


# What users look for, and the guide that has to be found.
LOOKED_FOR = {'RUNNEL_CHECK': 'race-checker', 'cudaMemcpyAsync': 'porting', 'deadlock': 'completion', 'stencil': 'overlap', 'two gpus': 'beyond-one-device',
              'multi-gpu': 'beyond-one-device', 'docker': 'installing', 'windows': 'installing', 'cudaErrorInvalidValue': 'errors', 'safetensors': 'python',
              'default streams': 'current-stream', 'larger than the device': 'offload'}


def not_found_by_search(folder):
    """Guides that the search does not know, or knows twice, and tasks of the first page that it does not find by their last word."""
    of_site, sections = filter_of_site(), in_search(folder)

    def finds(typed, guide):
        """As docs/site/find.js: every word occurs in one section."""
        words = typed.lower().split()
        return any(all(word in f'{title} {heading} {text}'.lower() for word in words)
                   for title, heading, address, text in sections if address.split('#')[0] == f'{guide}.html')

    titles = {address.split('#')[0]: title for title, heading, address, text in sections}
    for guide in sorted((repository.ROOT / 'docs').glob('*.md')):
        if f'{of_site.page_label(guide)}.html' not in titles:
            yield f'docs/{guide.name}: the search does not know the page'
    for title, count in collections.Counter(titles.values()).items():
        if count > 1:
            yield f'the search shows {title} for {count} pages'
    tasks = re.findall(r'^\| ([^|[]+) \| \[[^]]+\]\(([\w-]+)\.md', (repository.ROOT / 'docs/index.md').read_text(), re.MULTILINE)
    for task, guide in [(task.split()[-1], guide) for task, guide in tasks] + list(LOOKED_FOR.items()):
        if not finds(task, guide):
            yield f'a search for {task} does not find {guide}.md'
    if not tasks:
        yield 'docs/index.md: there are no tasks'


def without_topic():
    for header in sorted((repository.ROOT / 'include/runnel').glob('*.hpp')):
        if header.name not in WITHOUT_TOPIC and not re.search(r'^/// \\file\n/// \\ingroup topic_\w+$', header.read_text(), re.MULTILINE):
            yield f'{repository.name(header)}: its first comment does not begin with \\file and \\ingroup (docs/site/topics.dox has the topics)'


def hidden_names(pages):
    """Names that users need not know, in pages of the reference."""
    for name, page in pages.items():
        if re.match('class|struct|group__|concept|namespace', name):
            for found in sorted(set(HIDDEN.findall(''.join(page.words)))):
                yield f'{name}: {found}: docs/site/filter.py does not know what to show in its place'


def garbled(pages):
    """Raw marks, names of files of which the site has a page, and quotes and dashes that Doxygen made of those in the source, so that a line does not work as pasted."""
    for name, page in pages.items():
        text = ''.join(page.prose)
        for found in list(GARBLED.finditer(text))[:3]:
            around = ' '.join(text[max(0, found.start() - 60):found.end() + 20].split())
            yield f'{name}: {found.group(0)!r} shows in "{around}": docs/site/filter.py has to write that otherwise'


def without_example():
    """Topics in which nothing leads to a block of code of a guide."""
    of_site = filter_of_site()
    topics = {}
    for path in sorted((repository.ROOT / 'include/runnel').glob('*.hpp')):
        text = path.read_text()
        topic = of_site.topic_of(text)
        topics[topic] = topics.get(topic, 0) + of_site.header(path, text).count('\\examplein{')
    print('examples in guides: ' + ', '.join(f'{topic} {count}' for topic, count in topics.items() if topic))
    yield from (f'docs/site/topics.dox: {topic}: no function has an example in a guide' for topic, count in topics.items() if topic and not count)


def main():
    if shutil.which('doxygen') is None:
        repository.skip('doxygen is not installed')
    with tempfile.TemporaryDirectory() as written:
        complaints = write(written)
        if complaints:  # there is no search then
            repository.finish(complaints)
        folder = pathlib.Path(written) / 'html'
        pages = {path.name: Page(path.read_text()) for path in folder.glob('*.html')}
        complaints += [*broken_links(folder, pages), *not_found_by_search(folder), *led_astray(folder), *without_topic(), *without_example(), *hidden_names(pages), *garbled(pages)]
    print(f'{len(pages)} pages, {sum(len(page.targets) for page in pages.values())} links')
    repository.finish(complaints if pages else complaints + ['doxygen wrote no page'])


if __name__ == '__main__':
    main()
