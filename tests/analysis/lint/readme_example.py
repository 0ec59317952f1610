# SPDX-License-Identifier: Apache-2.0
"""The README's example is the text of examples/first.cpp."""
import re

import repository

source = (repository.ROOT / 'examples/first.cpp').read_text().split('\n', 1)[1]  # all but the licence line
blocks = re.findall(r'^```cpp\n(.*?)^```$', (repository.ROOT / 'README.md').read_text(), re.MULTILINE | re.DOTALL)
repository.finish([] if source in blocks else ['README.md: no block of C++ equals examples/first.cpp; copy the example into it'])
