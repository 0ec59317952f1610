# SPDX-License-Identifier: Apache-2.0
"""The mechanisms that timelines have replaced (docs/architecture.md, "What happens later") do not come back beside them."""
import re

import repository

GONE = ('StreamPoint StreamEnd PendingStreams DeferredFree poll_end free_waiting_slot waits_for_points mark_requested poll_mark marks_complete '
        'completion_busy last_completion next_line sort_new pending_in known_complete_ note_record several_threads '
        'start_device_wait DeferredRelease')
NAMES = re.compile(r'\b(' + '|'.join(GONE.split()) + r')\b')

complaints = []
for path in repository.files('src', 'include', 'backends', 'tests/unit', 'tests/analysis/models', endings=('.cpp', '.hpp')):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for name in NAMES.findall(line):
            complaints.append(f'{repository.name(path)}:{number}: {name} is a name of a mechanism that timelines have replaced')
repository.finish(complaints)
