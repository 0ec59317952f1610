# SPDX-License-Identifier: Apache-2.0
"""A header that opens the namespace RUNNEL_ABI includes a public header, and so config.hpp: without, the namespace would be named RUNNEL_ABI
itself in files that include it first, and its classes would be other classes there."""
import re

import repository

paths = [path for path in repository.files('include', 'src', 'backends', endings=('.hpp',)) if re.search(r'^namespace .*\bRUNNEL_ABI\b', path.read_text(), re.M)]
print(f'{len(paths)} headers')
repository.finish([f'{repository.name(path)}: includes no header of runnel/' for path in paths
                   if not re.search(r'^#include <runnel/', path.read_text(), re.M)] or ([] if paths else ['no header was found']))
