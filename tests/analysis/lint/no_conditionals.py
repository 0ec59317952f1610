# SPDX-License-Identifier: Apache-2.0
"""No #if in backends/cuda_hip/: differences between the vendors belong into their tables."""
import re

import repository

if not (repository.ROOT / 'backends/cuda_hip').is_dir():
    repository.skip('there is no backends/cuda_hip')
repository.finish([f'{repository.name(path)}:{number}: {line.strip()}'
                   for path in repository.files('backends/cuda_hip', endings=('.hpp', '.cpp'))
                   for number, line in enumerate(path.read_text().splitlines(), 1)
                   if re.match(r'\s*#\s*(if|ifdef|ifndef|elif)\b', line)])
