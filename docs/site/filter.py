#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns a file of the repository into what Doxygen reads for the site. Lines stay where they are, so that warnings name the right ones.

usage: filter.py FILE

topics.dox also gets a page for each section of that list, which the site's tree shows. A header: what it declares goes into the topic that its first comment names by an ingroup command, without the inline namespace, and with
words in place of types that users do not name. A guide: its headings get the anchors that they have on code hosts, and its links lead to
pages of the site."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = (ROOT / 'examples', ROOT / 'python/examples')
SINCE = '0.1'  # of everything that does not name another version itself

LONG = 4  # sections
LIST = '## All pages'  # in the index: the pages below it are the guides, in this order, in sections

# Types that users do not name, and what the reference shows in their place.
SHOWN = [
    (r'template <detail::CopyPolicy O = CopyOptions>', ''),
    (r',(\s+)(?:runnel::)?detail::CopyPolicy O = CopyOptions>', r'>\1'),
    (r'const O& (options|policy) = \{\}', 'const CopyOptions& options = {}'),
    (r'template <execution_space E = DefaultSpace, [\w:]+<E> F>', 'template <execution_space E = DefaultSpace, class F>'),
    (r'detail::uses_device_memory E', 'execution_space E'),
    (r'detail::\w+(?:<[^<>]*>)? (?=\w+[,>])', 'class '),
    (r'requires detail::.*', ''),
    (r'std::type_identity_t<detail::element_of<To>>', 'auto'),
    (r'detail::Callback<(.*?)> progress', r'std::function<void(\1)> progress'),
    (r'-> decltype\(call_on_complete\(.*\)\) \{', '-> void {'),
    (r'-> decltype\(future_of\(.*?\)\) \{', '-> Future {'),
    (r'-> decltype\(set_by_synchronize\(.*?\)\) \{', '-> void {'),
    (r'detail::Given<E>', 'E'),
    (r': public detail::OwnedHostArray<T, detail::\w+>', ': public OwnedHostArray<T>'),
    (r': public detail::OwnedArray<T, detail::\w+>', ': public OwnedArray<T>'),
    (r'detail::EventBase', 'EventBase'),
    (r'OverlapRows<detail::element_of<R>>', 'OverlapRows<T>'),
    (r'detail::execution::\w+(<.*?>)?', 'auto'),
    (r'detail::AllocatesOn<R, ([\w:]+)>', r'requires(R& r, \1 stream) { r.allocate(stream, bytes, alignment); }'),
    (r'detail::AllocatesAsync<R>', r'requires(R& r, native::stream stream) { r.allocate_async(bytes, alignment, stream); }'),
    (r'class T = std::remove_const_t<detail::element_of<From>>', 'class T'),
    (r'detail::PinnedSpace', 'Kokkos::SharedHostPinnedSpace'),
    (r'(?m)^ protected:', ' private:'),
    (r'\[\[(nodiscard|noreturn)\]\] ', ''),
]
# Bases whose members users call, though they do not name the bases.
BASES = {
    'detail/owned_array.hpp': [(r'(?<=RUNNEL_ABI)::detail', ''), (r'<class T, class Owner>', '<class T>'), (r' : protected Owner', ''),
                               (r'OwnedArray<T, Owner>', 'OwnedArray<T>')],
    'event.hpp': [(r'(later\{nullptr\};\n\};)\n', r'\1 }\n'), (r'(?<=};\n\n)}  // namespace detail', '')],
}
SPECIALISATIONS = re.compile(r'^(template <>\n(?=struct std::)|struct std::[^\n]*;$|struct std::.*?^\};$)', re.MULTILINE | re.DOTALL)
# Doxygen links to a list of private structures, and does not write the list.
PRIVATE = re.compile(r'(?<=^ private:\n)  struct \w+ \{.*?^  \};$', re.MULTILINE | re.DOTALL)
OPENED = re.compile(r'namespace runnel(?:::inline RUNNEL_ABI)?((?:::\w+)*) \{')
OUTER = r'namespace runnel\1 {'  # without the inline one
CLOSED = re.compile(r'^\}(?=  // namespace runnel)', re.MULTILINE)


def blank(match):
    return '\n' * match.group(0).count('\n')


def topic_of(text):
    """The topic that the first comment of a header names."""
    head = re.match(r'//.*\n((?:///.*\n)+)', text)
    found = head and re.search(r'^/// \\ingroup (\w+)$', head.group(1), re.MULTILINE)
    return found.group(1) if found else None


def guides_of(topic):
    """The guides that docs/site/topics.dox names for a topic, then all others that have blocks of code for it."""
    dox = (ROOT / 'docs/site/topics.dox').read_text()
    words = re.search(rf'\\defgroup {topic} .*?\*/', dox, re.DOTALL)
    named = re.findall(r'[\w-]+', words.group(0).partition('Guide')[2]) if words else []
    pages = [ROOT / f'docs/{name}.md' for name in named]
    return [page for page in pages if page.exists()]


def other_guides(pages):
    return [page for page in sorted((ROOT / 'docs').glob('*.md')) if page not in pages and page.stem not in ('decisions', 'porting')]


def examples_in(pages):
    """The blocks of C++ of these guides, which tests/analysis/lint/doc_examples.py compiles: (the link to the block's heading, the code)."""
    for page in pages:
        heading, title = '', ''
        for part in re.finditer(r'^#+ (?P<words>[^\n]*)$|^```cpp\n(?P<code>.*?)^```$', page.read_text(), re.MULTILINE | re.DOTALL):
            if part['words']:
                if not title:
                    title = part['words']
                else:
                    heading = part['words']
            elif '// a block of this page' not in part['code']:
                place = f'#{page_label(page)}_{anchor(heading)}' if heading else ''
                words = f'{title}: {heading}' if heading else title
                yield f'<a href="{page_label(page)}.html{place}">{words}</a>', part['code']


def programs():
    """The examples, those first that show members which no guide needs: (the link to the program's page, the code)."""
    for path in sorted((ROOT / 'examples').rglob('*.cpp'), key=lambda path: (path.parent.name != 'members', path)):
        yield f'<a href="{example_page(path)}">{path.relative_to(ROOT).as_posix()}</a>', path.read_text()


DECLARED = re.compile(r'^(?P<indent> *)(?:friend |static |inline |constexpr |explicit |virtual |\[\[\w+\]\] ?)*'
                      r'(?:(?:class|struct|enum class|concept|using) (?:\[\[\w+\]\] )?(?P<type>\w+)|[^()=/]*?(?P<call>~?\w+)\()')


def use_of(lines, number, owner):
    """What code looks like that uses the declaration after line `number`, and whether other things have such names too. None: no such code."""
    for line in lines[number + 1:number + 6]:
        line = line.replace('sizeof...(N)', 'N')
        if re.match(r'\s*(template|requires|///|$)', line):
            continue
        found = DECLARED.match(line)
        if found is None or (found['call'] or '').startswith(('~', 'operator')):
            return None
        if found['type']:
            return rf'\b{found["type"]}\b', False
        name = found['call']
        if name == 'co_await':
            return r'\bco_await \w', False
        if not found['indent'] or ' friend ' in line:
            return rf'(?<![\w.>]){name}[<(]', False
        if name == owner:
            return rf'\b{owner}\b(?:<\w+>)?(?: \w+)?[{{(;]', False
        return rf'(?:\.|->|\b{owner}::){name}[<(]', len(name) < 8
    return None


def with_versions(text, topic):
    """Each comment of a declaration says since when it is there, and where an example is: in the topic's guides, else in others, else in a
    program."""
    own = guides_of(topic)
    near, far, shown = list(examples_in(own)), list(examples_in(other_guides(own))), list(programs())
    lines, owner = text.split('\n'), ''
    is_comment = [bool(re.match(r'\s*///(?!<|@\}|\s*@(?:end)?cond)', line)) for line in lines] + [False]
    block = []
    for number, line in enumerate(lines):
        opened = re.match(r'(?:class|struct) (?:\[\[\w+\]\] )?(\w+)[^;]*\{', line)
        owner = opened.group(1) if opened else owner
        if not is_comment[number]:
            continue
        block.append(line)
        if is_comment[number + 1]:
            continue
        if not any(word in ' '.join(block) for word in ('\\since', '\\file')):
            pattern, is_common = use_of(lines, number, owner) or ('(?!)', True)
            place = next((link for link, code in near + ([] if is_common else far) if re.search(pattern, code)), None)
            # Other things have common names, too: a program that shows this one also names its class.
            named = rf'\b{owner.removesuffix("Base").removesuffix("Ref")}' if is_common else ''
            place = place or next((link for link, code in shown if re.search(pattern, code) and re.search(named, code)), None)
            lines[number] += f' \\since {SINCE}' + (f' \\examplein{{{place}}}' if place else '')
        block = []
    return '\n'.join(lines)


def header(path, text):
    for pattern, words in BASES.get(path.relative_to(ROOT / 'include/runnel').as_posix(), []):
        text = re.sub(pattern, words, text)
    text = PRIVATE.sub(blank, SPECIALISATIONS.sub(blank, text))
    guides = re.compile(r'\bdocs/((?:decisions/)?[\w-]+\.md)\b')
    text = re.sub('///.*', lambda comment: guides.sub(lambda name: link(ROOT / 'docs/index.md', '.md', name[1], False), comment[0]), text)
    topic = topic_of(text)
    text = with_versions(text, topic)
    for pattern, words in SHOWN:
        text = re.sub(pattern, words, text)
    if topic is None:
        return CLOSED.sub('}', OPENED.sub(OUTER, text))
    # The command takes the rest of its line for a title. The line after the namespace is empty.
    text = OPENED.sub(rf'{OUTER} /** \\addtogroup {topic}\n@{{ */', text)
    text = text.replace('@{ */\n\n', '@{ */\n')
    return CLOSED.sub('/** @} */ }', text)


def anchor(heading):
    """The anchor of a heading, as code hosts make it (tests/analysis/lint/doc_links.py)."""
    return re.sub(r'[^\w\- ]', '', heading.strip().lower()).replace(' ', '-')


def page_label(path):
    if path.name == 'README.md':
        return 'python_package'
    # Doxygen writes examples.html itself: a bare list, to which nothing leads.
    words = 'example_programs' if path.name == 'examples.md' else path.stem.lower().replace('.', '_')
    return ('decision_' if path.parent.name == 'decisions' else '') + words


def example_page(path):
    """The page that Doxygen makes for an example."""
    name = path.relative_to(next(folder for folder in EXAMPLES if folder in path.parents)).as_posix()
    return ''.join({'.': '_8', '/': '_2'}.get(letter, letter) for letter in name) + '-example.html'


def title_of(path):
    return re.search('^# (.*)$', path.read_text(), re.MULTILINE).group(1)


def link(page, words, target, listed):
    """A link of a guide, as the site has it. `listed`: it puts the page below this one, in the order of the links."""
    if re.match('[a-z]+:', target):
        return f'[{words}]({target})'
    name, _, heading = target.partition('#')
    path = (page.parent / name).resolve() if name else page
    inside = path.parent in (ROOT / 'docs', ROOT / 'docs/decisions') or path in (ROOT / 'CHANGELOG.md', ROOT / 'python/README.md')
    if path.suffix == '.md' and inside:
        label = page_label(path)
        if words.endswith('.md'):
            words = title_of(path)
        if listed and not heading:
            return f'\\subpage {label} "{words}"'
        return f'<a href="{label}.html{f"#{label}_{heading}" if heading else ""}">{words}</a>'
    if any(folder in path.parents for folder in EXAMPLES):
        return f'<a href="{example_page(path)}">{words}</a>'
    if path == ROOT / 'include/runnel':
        return f'<a href="reference.html">{words}</a>'
    place = path.relative_to(ROOT).as_posix()
    return f'`{place}`' if words in (place, name) else f'{words} (`{place}`)'


def words_of_markdown(text):
    """What Doxygen reads otherwise than code hosts: an apostrophe ends a code span of one backtick, and what follows shows as raw HTML; bold
    words that begin or end with code show their asterisks."""

    def change(match):
        if match['bold']:
            return f'<b>{words_of_markdown(match["bold"])}</b>'
        return f'`{match[0]}`' if "'" in match[0] and not match[0].startswith('``') else match[0]

    inside = r'(?:[^`\n]|\n(?!\n))+'
    return re.sub(rf'``{inside}``|`{inside}`|\*\*(?P<bold>(?:[^*`\n]|`[^`\n]+`)+)\*\*', change, text)


def guide(path, text):
    """A page of the site."""
    text = re.sub(r'<!--.*?-->', blank, text, flags=re.DOTALL)
    label = page_label(path)
    is_index = label == 'index'

    def heading(match):
        marks, words = match.group(1), match.group(2).replace('`', '')  # which Doxygen would show as tags
        if is_index and marks == '#':
            return match.group(0)
        return f'{marks} {words} {{#{label if marks == "#" else f"{label}_{anchor(words)}"}}}'

    def with_links(part, listed):
        return re.sub(r'(?<!!)\[([^]]*)\]\(([^)\s]+)\)', lambda match: link(path, *match.groups(), listed), part)

    # A long page begins with a table of its contents.
    if not is_index and len(re.findall(r'^## ', text, re.MULTILINE)) >= LONG:
        text = re.sub(r'^(# .*)\n', r'\1\n[TOC]\n', text, count=1, flags=re.MULTILINE)
    if label == 'decisions':
        text = with_links(text, True)
    # Blocks of code stay as they are.
    blocks = re.split(r'(^```.*?^```$|(?<=\n\n)(?:    [^\n]*\n)+)', text, flags=re.MULTILINE | re.DOTALL)
    for number in range(0, len(blocks), 2):
        before, mark, after = blocks[number].partition(LIST if is_index else '\0')
        after = re.sub(r'^### (.*)$', lambda match: f'**\\subpage {section_label(match.group(1))} "{match.group(1)}"**', after, flags=re.MULTILINE)
        blocks[number] = re.sub(r'^(#+) (.*)$', heading, words_of_markdown(with_links(before + mark + after, False)), flags=re.MULTILINE)
    return ''.join(blocks)


def section_label(name):
    return 'section_' + re.sub(r'\W+', '_', name.lower())


def section_pages():
    """A page for each section of the list of guides, with the guides below it."""
    index = ROOT / 'docs/index.md'
    for name, table in re.findall(r'^### (.*)\n((?:(?!^###).*\n?)*)', index.read_text().partition(LIST)[2], re.MULTILINE):
        rows = re.findall(r'^\| (\[.*?\]\(.*?\)) \| (.*) \|$', table, re.MULTILINE)
        lines = [' * - ' + re.sub(r'\[(.*)\]\((.*)\)', lambda match: link(index, *match.groups(), True), page) + ': ' + words for page, words in rows]
        yield '\n'.join([f'/** \\page {section_label(name)} {name}', *lines, ' */', ''])


def main():
    path = pathlib.Path(sys.argv[1]).resolve()
    text = path.read_text()
    if path.suffix == '.dox':
        text += '\n' + '\n'.join(section_pages())
    change = {'.hpp': header, '.md': guide}.get(path.suffix)
    sys.stdout.write(change(path, text) if change else text)


if __name__ == '__main__':
    main()
