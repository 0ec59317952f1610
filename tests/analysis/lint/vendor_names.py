# SPDX-License-Identifier: Apache-2.0
"""No vendor's header, macro or name in include/, and no backend's name in src/ and tests/conformance/."""
import re

import repository

# Files that are about a vendor, or about what its compiler can do.
INTEROP = {'include/runnel/native.hpp', 'include/runnel/config.hpp.in', 'include/runnel/kokkos.hpp',
           'include/runnel/detail/kokkos_arguments.hpp', 'include/runnel/detail/kokkos_guarded.hpp', 'include/runnel/detail/kokkos_instances.hpp', 'include/runnel/detail/kokkos_shapes.hpp',
           'include/runnel/detail/kokkos_work.hpp', 'include/runnel/detail/refused.hpp', 'include/runnel/detail/device_code.hpp'}
# Tests with kernels of their own say what a vendor's runtime does with them.
KERNELS = ('tests/conformance/kernels/', 'tests/conformance/kokkos/')
VENDOR = re.compile(r'''\#\s*include\s*[<"](cuda|hip|nv|cu[a-z_]*\.h|rocm|Kokkos)
                        | \b(cuda|hip|nvtx|roctx)[A-Z]\w* | \bCU[a-z]\w*_st\b | \bihip\w+ | \bCU(DA|stream|event)\w*\b
                        | __(CUDA|HIP|NVCC|HCC)\w* | \bRUNNEL_BACKEND_\w+ | \bRUNNEL_HIP_\w+''', re.VERBOSE)
BACKEND = re.compile(r'\b(cuda|hip|rocm|nvidia|amd)(?![a-z])\w*|\bRUNNEL_BACKEND\w*|\b(cuda|hip|host)_v0\b', re.IGNORECASE)


def code_of(line):
    """A line without its comment: documentation may name a vendor's functions."""
    return re.sub(r'//.*', '', line)


complaints = []
for path in repository.files('include', endings=('.hpp', '.in')):
    if repository.name(path) in INTEROP:
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if found := VENDOR.search(code_of(line)):
            complaints.append(f'{repository.name(path)}:{number}: the vendor name {found.group(0)!r} in a public header')

for path in repository.files('src', 'tests/conformance', endings=('.cpp', '.hpp')):
    if repository.name(path).startswith(KERNELS):
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if found := BACKEND.search(code_of(line)):
            complaints.append(f'{repository.name(path)}:{number}: the backend name {found.group(0)!r} in code for every backend')
repository.finish(complaints)
