# SPDX-License-Identifier: Apache-2.0
"""The headers are cheap to include. After the preprocessor, <runnel/stream.hpp> has no more lines than <string>, <span> and <chrono> have
together (one percent more if those include <format>). <runnel/runnel.hpp> compiles in at most 0.6 s of processor time.

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


def seconds_of(*headers):
    """Processor time to compile the headers, the best of five runs."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, 'source.cpp')
        with open(source, 'w', encoding='utf-8') as file:
            file.write(source_of(headers))
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*compiler, *FLAGS, '-c', source, '-o', source + '.o'], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(times)


three = preprocessed(*STANDARD)
most, found = three.count('\n'), preprocessed('runnel/stream.hpp').count('\n')
# From g++ 13 on, <chrono> includes <format> and thereby almost all of the standard library, so stream.hpp cannot be smaller: allow its own lines.
granted = most // 100 if '/format"' in three else 0
standard, all_of_it = seconds_of(*STANDARD), seconds_of('runnel/runnel.hpp')
print(f'runnel/stream.hpp: {found} lines; {", ".join(STANDARD)}: {most}')
print(f'runnel/runnel.hpp: {all_of_it:.2f} s; {", ".join(STANDARD)}: {standard:.2f} s')
complaints = []
if found > most + granted:
    complaints.append(f'runnel/stream.hpp has {found} lines after the preprocessor, more than the {most} of {", ".join(STANDARD)}')
# On a slow machine the standard headers are slow too, so compare with them.
if all_of_it > MOST_SECONDS and all_of_it > 2 * standard:
    complaints.append(f'runnel/runnel.hpp takes {all_of_it:.2f} s to compile, more than {MOST_SECONDS} s')
repository.finish(complaints)
