# SPDX-License-Identifier: Apache-2.0
"""No function of the library or the command has more than 40 lines, from the line of its opening brace to the line of its closing brace."""
import functions
import repository

MOST = 40
SHOWN = 5

found = []
complaints = []
for path in repository.files('src', 'backends', 'include', 'tools', endings=('.cpp', '.hpp', '.cu')):
    try:
        text, all_functions = functions.of(path)
    except ValueError as error:
        complaints.append(f'{repository.name(path)}: {error}: this rule does not understand the file')
        continue
    for function, opening, close in all_functions:
        line = text.count('\n', 0, opening) + 1
        found.append((text.count('\n', opening, close) + 1, f'{repository.name(path)}:{line}: {function}'))
found.sort(key=lambda each: -each[0])
if len(found) < 500:
    complaints.append(f'only {len(found)} functions were found: this rule no longer understands the sources')
print(f'{len(found)} functions; the longest:')
for lines, place in found[:SHOWN]:
    print(f'  {lines} lines: {place}')
complaints += [f'{place}: {lines} lines, at most {MOST}' for lines, place in found if lines > MOST]
repository.finish(complaints)
