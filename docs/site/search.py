#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets the site's search find the guides by each word of their headings, and of the tasks on the first page. The index that Doxygen writes
has a guide by the first word of its title only.

usage: search.py HTML-FOLDER"""
import html
import pathlib
import re
import sys

import filter as of_site

# Nobody looks for these.
SMALL = set('a an and are at by do does for from has how i if in is it its not of on one or so that the them there to what where which with'.split())


def address(page, heading):
    label = of_site.page_label(page)
    return f'{label}.html#{label}_{heading}' if heading else f'{label}.html'


def places():
    """What can be looked for: (words, address, title of the page)."""
    for page in sorted((of_site.ROOT / 'docs').glob('*.md')):
        text = re.sub(r'^```.*?^```$', '', page.read_text(), flags=re.MULTILINE | re.DOTALL).replace('`', '')
        if page.stem == 'index':
            for words, title, name, heading in re.findall(r'^\| ([^|]+) \| \[([^]]+)\]\(([\w-]+\.md)#?([\w-]*)\) \|$', text, re.MULTILINE):
                yield words, address(page.with_name(name), heading), title
        elif page.stem != 'decisions':
            title, *headings = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
            yield title, address(page, ''), title
            yield from ((words, address(page, of_site.anchor(words)), title) for words in headings)


def key(words):
    """The words as the search compares them with what is typed."""
    return re.sub(r'[^a-z0-9]', lambda match: f'_{ord(match.group(0)):02x}', words.lower())


def entries():
    """By letter: the key, and what the search shows for it."""
    found = {}
    for words, url, title in places():
        is_title = words == title
        shown = f"['{html.escape(words)}',['../{url}',1,'{'' if is_title else html.escape(title)}']]"
        for word in re.finditer(r'\w[\w-]*', words):
            if word.group(0).lower() not in SMALL and not (is_title and word.start() == 0):
                found.setdefault(word.group(0)[0].lower(), []).append((key(words[word.start():]), shown))
    return found


def main():
    folder = pathlib.Path(sys.argv[1]) / 'search'
    data = (folder / 'searchdata.js').read_text()
    letters, names = data.split('var indexSectionNames')
    for number, name in re.findall(r'(\d+): "(all|pages)"', names):
        line = re.search(rf'^  {number}: "([^"]*)"', letters, re.MULTILINE)
        known = line.group(1)
        for letter, added in entries().items():
            if letter not in known:
                known += letter
                like = folder / f'{name}_0.html'
                if like.exists():  # newer versions of Doxygen write no page for each letter
                    stem = f'{name}_{len(known) - 1:x}'
                    (folder / f'{stem}.html').write_text(like.read_text().replace(f'{name}_0.js', f'{stem}.js'))
            script = folder / f'{name}_{known.index(letter):x}.js'
            there = re.findall(r'^  \[\'(\w+)_\d+\',(.*)\],?$', script.read_text(), re.MULTILINE) if script.exists() else []
            rows = sorted({*there, *added})
            script.write_text('var searchData=\n[\n' + ',\n'.join(f"  ['{row}_{place}',{shown}]" for place, (row, shown) in enumerate(rows)) + '\n];\n')
        letters = letters.replace(line.group(0), f'  {number}: "{known}"')
    (folder / 'searchdata.js').write_text(letters + 'var indexSectionNames' + names)


if __name__ == '__main__':
    main()
