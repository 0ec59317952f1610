# SPDX-License-Identifier: Apache-2.0
"""A simple parser of C++: it matches braces, after blanking comments, strings and preprocessor lines. A lambda counts as a part of its function.
"""
import re

BLANKED = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.MULTILINE)
SCOPE = re.compile(r'(?:(?:inline|static|constexpr|extern)\s+)*(?:namespace|class|struct|union|enum|"")')
PREFIX = re.compile(r'\s*(?:\[\[.*?\]\]|alignas\([^()]*\)|(?:public|protected|private):|requires\b)\s*', re.DOTALL)
NAME = re.compile(r'((?:[\w~]+(?:<[^()]*>)?::)*(?:operator\s*[^\s(\w]+|operator\s*\(\)|operator [\w:]+|~?\w+))\s*\(')


def keep_lines(match):
    text = match.group()
    if re.match(r"'", text) and re.search(r'\d$', match.string[:match.start()]):
        return text  # a digit separator
    return '\n' * text.count('\n') if text[0] in '/#' else '""' + '\n' * text.count('\n')


def closing(text, opening):
    """The position of the brace that closes the brace at `opening`."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {'{': 1, '}': -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError('a brace is not closed')


def declaration(head):
    """What is left of a declaration without template parameters, attributes and access labels in front."""
    while True:
        if match := PREFIX.match(head):
            head = head[match.end():]
        elif match := re.match(r'\s*template\s*<', head):
            depth = 1
            place = match.end()
            while depth > 0 and place < len(head):
                depth += {'<': 1, '>': -1}.get(head[place], 0)
                place += 1
            head = head[place:]
        else:
            return re.sub(r'\b(class|struct)\s+(?:\[\[.*?\]\]|alignas\([^()]*\))', r'\1', head).strip()


def functions(text, start, end):
    """Yields name, position of `{` and position of `}` of each function in text[start:end], which is a file or the body of a namespace or class."""
    head = start
    place = start
    while place < end:
        if text[place] in ';}':
            head = place + 1
        elif text[place] == '{':
            close = closing(text, place)
            before = declaration(text[head:place])
            # `word_{` after a constructor's colon initialises a member. The function's body comes later.
            is_member = re.search(r'\)[^()]*[^:]:[^:]', before) and not re.search(r'[)}]$', before)
            if SCOPE.match(before):
                yield from functions(text, place + 1, close)
                head = close + 1
            elif is_member:
                pass
            elif '(' in before:
                name = NAME.search(before)
                yield (name.group(1) if name else before.split('\n')[0], place, close)
                head = close + 1
            place = close
        place += 1


def of(path):
    """The blanked text of the file, and name, position of `{` and position of `}` of each function."""
    text = DIRECTIVE.sub(keep_lines, BLANKED.sub(keep_lines, path.read_text()))
    return text, list(functions(text, 0, len(text)))
