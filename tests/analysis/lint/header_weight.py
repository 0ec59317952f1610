# SPDX-License-Identifier: Apache-2.0
"""The headers are cheap to include. After the preprocessor, <runnel/stream.hpp> has no more lines of code than <string>, <span> and <chrono>
have together (one percent more if those include <format>): documentation costs nothing. <runnel/runnel.hpp> compiles in at most 0.6 s of processor time.

Arguments: the directory of the generated config.hpp, -- and the compiler's command."""
import os
import resource
import subprocess
import sys
import tempfile

import repository

generated = sys.argv[1]
compiler = [word for word in sys.argv[3:] if not word.endswith('ccache')]
FLAGS = ['-std=c++20', '-I', str(repository.ROOT / 'include'), '-I', generated]
STANDARD = ['string', 'span', 'chrono']
MOST_SECONDS = 0.6


def source_of(headers):
    return ''.join(f'#include <{header}>\n' for header in headers)


def preprocessed(*headers):
    return subprocess.run([*compiler, *FLAGS, '-E', '-x', 'c++', '-'], input=source_of(headers), capture_output=True, text=True, check=True).stdout


def lines_of_code(text):
    return sum(1 for line in text.splitlines() if line.strip() and not line.startswith('#'))


def seconds_of(folder, *headers):
    """Processor time to compile the headers once."""
    source = os.path.join(folder, 'source.cpp')
    with open(source, 'w', encoding='utf-8') as file:
        file.write(source_of(headers))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*compiler, *FLAGS, '-c', source, '-o', source + '.o'], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def is_heavy(all_of_it, standard):
    # On a slow machine the standard headers are slow too, so compare with them.
    return all_of_it > MOST_SECONDS and all_of_it > 2 * standard


three = preprocessed(*STANDARD)
most, found = lines_of_code(three), lines_of_code(preprocessed('runnel/stream.hpp'))
# From g++ 13 on, <chrono> includes <format> and thereby almost all of the standard library, so stream.hpp cannot be smaller: allow its own lines.
granted = most // 100 if '/format"' in three else 0
standard = all_of_it = float('inf')
with tempfile.TemporaryDirectory() as folder:
    # Processor time varies by half beside other work, so that the best of a few runs may be bad luck still.
    for turn in range(25):
        standard = min(standard, seconds_of(folder, *STANDARD))
        all_of_it = min(all_of_it, seconds_of(folder, 'runnel/runnel.hpp'))
        if turn >= 4 and not is_heavy(all_of_it, standard):
            break
print(f'runnel/stream.hpp: {found} lines of code; {", ".join(STANDARD)}: {most}')
print(f'runnel/runnel.hpp: {all_of_it:.2f} s; {", ".join(STANDARD)}: {standard:.2f} s')
complaints = []
if found > most + granted:
    complaints.append(f'runnel/stream.hpp has {found} lines of code after the preprocessor, more than the {most} of {", ".join(STANDARD)}')
if is_heavy(all_of_it, standard):
    complaints.append(f'runnel/runnel.hpp takes {all_of_it:.2f} s to compile, more than {MOST_SECONDS} s')
repository.finish(complaints)
