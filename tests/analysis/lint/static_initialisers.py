# SPDX-License-Identifier: Apache-2.0
"""The library runs no code when it is loaded. Arguments: the library, and nm's command."""
import re
import subprocess
import sys

import repository

library, nm = sys.argv[1], sys.argv[2:]
symbols = subprocess.run([*nm, '--demangle', library], capture_output=True, text=True, check=True).stdout
if 'no symbols' in symbols or not symbols.strip():
    repository.skip('the library is stripped')
# Sanitizers and coverage add initialisers of their own.
if re.search(r'__(asan|tsan|msan|ubsan|gcov)_', symbols):
    repository.skip('the library is instrumented')
repository.finish([f'{library}: {line.split(maxsplit=2)[-1]} runs when the library is loaded'
                   for line in symbols.splitlines() if re.search(r'_GLOBAL__sub_I|_GLOBAL__I_|__static_initialization', line)])
