# SPDX-License-Identifier: Apache-2.0
"""A header that opens the namespace RUNNEL_ABI includes a public header, or backend.hpp, which includes config.hpp. Otherwise, in a file that includes the
header first, the macro is not defined, the namespace is literally named RUNNEL_ABI, and its classes are different classes."""
import re

import repository

paths = [path for path in repository.files('include', 'src', 'backends', endings=('.hpp',)) if re.search(r'^namespace .*\bRUNNEL_ABI\b', path.read_text(), re.M)]
print(f'{len(paths)} headers')
repository.finish([f'{repository.name(path)}: includes no header of runnel/' for path in paths
                   if not re.search(r'^#include (<runnel/|"backend.hpp")', path.read_text(), re.M)] or ([] if paths else ['no header was found']))
