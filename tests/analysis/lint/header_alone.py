# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone, with warnings as errors, and can be included twice. Without C++20 it gives a few lines that say so.

Arguments: the directory of the generated config.hpp, -- and the compiler's command."""
import subprocess
import sys
import tempfile

import repository

generated, compiler = sys.argv[1], sys.argv[3:]
FLAGS = ['-std=c++20', '-Wall', '-Wextra', '-Wpedantic', '-Wconversion', '-Wshadow', '-Werror', '-fsyntax-only',
         '-I', str(repository.ROOT / 'include'), '-isystem', generated]
# Interop headers need another library, so their own tests compile them.
INTEROP = {'execution.hpp', 'kokkos.hpp', 'kokkos_arguments.hpp', 'kokkos_guarded.hpp', 'kokkos_instances.hpp', 'kokkos_shapes.hpp', 'kokkos_work.hpp', 'mpi.hpp'}

complaints = []
headers = [path for path in repository.files('include', endings=('.hpp',)) if path.name not in INTEROP]
for path in headers:
    with tempfile.NamedTemporaryFile('w', suffix='.cpp') as source:
        include = path.relative_to(repository.ROOT / 'include').as_posix()
        source.write(f'#include <{include}>\n#include <{include}>\n')
        source.flush()
        done = subprocess.run([*compiler, *FLAGS, source.name], capture_output=True, text=True)
        if done.returncode != 0:
            complaints.append(f'{repository.name(path)} does not compile alone:\n{done.stderr}')
        old = subprocess.run([*compiler, *FLAGS, '-std=c++17', source.name], capture_output=True, text=True)
        if old.returncode == 0 or 'runnel needs C++20: add -std=c++20' not in old.stderr or old.stderr.count('\n') > 20:
            complaints.append(f'{repository.name(path)} does not say in a few lines that it needs C++20:\n{old.stderr[:2000]}')
print(f'{len(headers)} headers')
repository.finish(complaints)
