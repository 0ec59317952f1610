#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives the site a search over all of its texts: writes find-index.js, which has each section of each page, and adds docs/site/find.js to
the pages. It takes wrong links out of blocks of code. Its menu leads to the list of guides on the first page, because Doxygen's own list has only what no other page contains.

usage: search.py HTML-FOLDER"""
import html.parser
import json
import pathlib
import re
import shutil
import sys

HEADINGS = ('h1', 'h2', 'h3')
# Pages that only list what others explain.
LISTS = re.compile(r'(section_.*|examples|annotated|classes|files|functions.*|globals.*|hierarchy|namespace.*|pages|topics|modules|dir_.*|.*-members|.*_source|.*_8hpp)\.html')


class Texts(html.parser.HTMLParser):
    """The sections of a page: [heading, place, text]. The title is the first one's heading."""

    def __init__(self, text):
        super().__init__()
        self.title, self.sections, self.place = '', [['', '', '']], ''
        self.inside, self.in_heading, self.is_title, self.in_cell, self.skipped = False, False, False, False, 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        kind = values.get('class') or ''
        if kind.startswith('ingroups'):
            self.is_title = False
        if kind == 'title':
            self.is_title = True
        self.inside |= kind == 'contents'
        if tag in ('td', 'th'):
            self.in_cell = kind.startswith('markdownTable')  # of a guide's table
        if tag in ('script', 'style') or kind == 'toc':
            self.skipped += 1
        elif self.skipped and tag == 'div':
            self.skipped += 1
        if self.inside and tag in HEADINGS:
            self.in_heading = True
            self.sections.append(['', self.place, ''])
        if values.get('id') and (tag == 'a' or tag in HEADINGS):
            self.place = values['id']
            if self.in_heading:
                self.sections[-1][1] = self.place

    def handle_endtag(self, tag):
        if self.skipped and tag in ('script', 'style', 'div'):
            self.skipped -= 1
        if tag in HEADINGS:
            self.in_heading = False
        if tag in ('td', 'th') and self.in_cell:
            self.sections[-1][2] += ' · '
        if tag == 'div':
            self.is_title = False

    def handle_data(self, data):
        if self.is_title:
            self.title += data
        elif self.inside and not self.skipped:
            self.sections[-1][0 if self.in_heading else 2] += data
            if data.strip():
                self.place = ''  # a place stands within its heading, or just before it


def sections(name, text):
    """What can be found in a page: [title, heading, address, text]."""
    page = Texts(text)
    title = ' '.join(re.sub(r'[◆§]', '', page.title).split())
    if name.startswith('group__'):
        title += ' (reference)'
    elif name.startswith('decision_'):
        title += ' (decisions)'
    for heading, place, words in page.sections:
        heading, words = ' '.join(re.sub(r'[◆§]', '', heading).split()), ' '.join(words.split())
        if title and (heading or words):
            yield [title, heading, f'{name}#{place}' if place else name, words]


LINK = re.compile(r'<a class="code hl_(\w+)" href="([^"]*)">([^<]*)</a>')


def without_guesses(page, text):
    """Doxygen links each word of a block of code that is also a name of the library. Left out are those of Python, those of other libraries,
    and words that are mostly variables of the program."""

    def change(match):
        kind, target, words = match.groups()
        is_variable = '::' not in words and kind in ('typedef', 'enumvalue', 'variable')
        is_special = '::' not in words and re.search('kokkos|communicator', target) and not re.search('kokkos|beyond', page)
        is_foreign = re.match('std::|Kokkos::', words) or page.startswith('python') or page.endswith('_8py-example.html')
        return words if is_variable or is_special or is_foreign else match[0]

    if page.startswith('python'):  # whose words are names of the C++ library, too
        text = re.sub(r'<a class="el" href="(?:group__|class|struct|namespace)[^"]*">([^<]*)</a>', r'\1', text)
    elif not re.search('kokkos|beyond', page):
        text = re.sub(r'<a class="el" href="[^"]*(?:kokkos|communicator)[^"]*">([\w.]+\(\))</a>', r'\1', text)
    return LINK.sub(change, text)


def main():
    folder = pathlib.Path(sys.argv[1])
    found, script = [], '<script src="find.js"></script>\n</body>'
    for path in sorted(folder.glob('*.html')):
        text = path.read_text()
        if not LISTS.fullmatch(path.name):
            found += sections(path.name, text)
        if script not in text:
            path.write_text(without_guesses(path.name, text).replace('</body>', script))
    menu = folder / 'menudata.js'
    menu.write_text(menu.read_text().replace('"pages.html"', '"index.html#index_all-pages"'))
    (folder / 'find-index.js').write_text('window.findIndex = ' + json.dumps(found, ensure_ascii=False, separators=(',', ':')) + ';\n')
    shutil.copy(pathlib.Path(__file__).with_name('find.js'), folder)


if __name__ == '__main__':
    main()
