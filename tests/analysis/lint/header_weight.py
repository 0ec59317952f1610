# SPDX-License-Identifier: Apache-2.0
"""The headers are cheap to include: after the preprocessor, <runnel/stream.hpp> has no more lines of code than <string>, <span> and <chrono>
have together (one percent more if those include <format>). Documentation costs nothing.

Arguments: the directory of the generated config.hpp, -- and the compiler's command."""
import subprocess
import sys

import repository

generated = sys.argv[1]
compiler = [word for word in sys.argv[3:] if not word.endswith('ccache')]
FLAGS = ['-std=c++20', '-I', str(repository.ROOT / 'include'), '-I', generated]
STANDARD = ['string', 'span', 'chrono']


def source_of(headers):
    return ''.join(f'#include <{header}>\n' for header in headers)


def preprocessed(*headers):
    return subprocess.run([*compiler, *FLAGS, '-E', '-x', 'c++', '-'], input=source_of(headers), capture_output=True, text=True, check=True).stdout


def lines_of_code(text):
    return sum(1 for line in text.splitlines() if line.strip() and not line.startswith('#'))


three = preprocessed(*STANDARD)
most, found = lines_of_code(three), lines_of_code(preprocessed('runnel/stream.hpp'))
# From g++ 13 on, <chrono> includes <format> and thereby almost all of the standard library, so stream.hpp cannot be smaller: allow its own lines.
granted = most // 100 if '/format"' in three else 0
print(f'runnel/stream.hpp: {found} lines of code; {", ".join(STANDARD)}: {most}')
repository.finish([f'runnel/stream.hpp has {found} lines of code after the preprocessor, more than the {most} of {", ".join(STANDARD)}']
                  if found > most + granted else [])
