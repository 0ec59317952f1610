# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md lists the portable codes of include/runnel/error.hpp, in the same order, and no others."""
import re

import repository

codes = re.findall(r'^  (\w+)(?: = 1)?,? +///<', (repository.ROOT / 'include/runnel/error.hpp').read_text(), re.MULTILINE)
rows = re.findall(r'^\| `(\w+)` \|', (repository.ROOT / 'docs/errors.md').read_text(), re.MULTILINE)
print(f'{len(codes)} codes')
repository.finish([] if codes and codes == rows else [f'include/runnel/error.hpp: {codes}', f'docs/errors.md: {rows}'])
