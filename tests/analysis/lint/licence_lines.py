# SPDX-License-Identifier: Apache-2.0
"""Each source and script names its licence in its first two lines."""
import repository

EXTRA = ['meson.build', '.editorconfig', '.clang-tidy', 'scripts/demo', 'scripts/test', 'scripts/docs', '.ci/run']
paths = list(repository.files()) + [repository.ROOT / name for name in EXTRA]
repository.finish([f'{repository.name(path)}: no "SPDX-License-Identifier: Apache-2.0" in the first two lines'
                   for path in paths
                   if path.exists() and not any('SPDX-License-Identifier: Apache-2.0' in line
                                                for line in path.read_text().splitlines()[:2])])
