# SPDX-License-Identifier: Apache-2.0
"""Only StreamQueryLock queries a stream: a driver crashes if a capture of the stream begins or ends meanwhile. Default streams cannot be captured."""
import re

import repository

ALLOWED = {'src/slot/capture.hpp'}
QUERY = re.compile(r'\bbackend::stream_query\((?!backend::default_stream\(\)\))')
repository.finish([f'{repository.name(path)}:{number}: {line.strip()}'
                   for path in repository.files('src', endings=('.hpp', '.cpp')) if repository.name(path) not in ALLOWED
                   for number, line in enumerate(path.read_text().splitlines(), 1) if QUERY.search(line)])
