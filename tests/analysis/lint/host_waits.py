# SPDX-License-Identifier: Apache-2.0
"""Each function of src/ in which the host waits keeps a ScopedWait, so that hooks, the trace and the report of long waits know of it, or is excused
here with a reason."""
import re

import functions
import repository

WAITS = re.compile(r'backend::(?:stream|event|device)_synchronize\(|\b(?:poll_until|try_for|block_until|wait_for_devices?)\(|[.>]wait(?:_until)?\(')
ANNOUNCED = re.compile(r'\bScopedWait\b')
THREAD = 'a thread of the library waits, and no caller'
CALLERS = 'its callers announce the wait'
MOMENT = 'waits for 20 ms at most'
PARTNER = 'waits for the other thread of the same call, which announces its own waits'
EXIT = 'the process exits, and the time is bounded'
EXCUSED = {
    'src/base/polling.hpp': CALLERS,
    'src/base/sync_hidden.hpp': CALLERS,
    'src/slot/wait_limit.hpp': CALLERS,
    'src/slot/capture.hpp: CaptureChangeLock': 'waits for 1 ms at most',
    'src/base/process.cpp: BlockingEnqueue::BlockingEnqueue': 'waits until a release is over, which devices that are idle make short',
    'src/base/process.cpp: enter_slowly': 'waits until a release is over, which devices that are idle make short',
    'src/base/statistics.cpp: end_user_accesses': EXIT,
    'src/stream/stream.cpp: wait_for_submitted': CALLERS,
    'src/slot/device_waits.cpp: synchronize': CALLERS,
    'src/memory/block_free.cpp: wait_for_deferred_free': CALLERS,
    'src/timeline/timeline.hpp: Recorder': 'another thread records on the stream, and its own record would wait for that, too',
    'src/memory/shared_memory.cpp: close_after_wait': CALLERS,
    'src/memory/device_memory.cpp: DeviceResource::trim': 'waits for 1 ms at most',
    'src/memory/pinned_pool.cpp: PinnedPool::trim': 'waits for 1 ms at most, and announces what may take longer',
    'src/overlap/overlap.cpp: OverlapRun': 'Device::synchronize() announces the wait',
    'src/overlap/overlap.cpp: finish': 'what it calls announces the wait',
    'src/overlap/overlap.cpp: wait_for_record': PARTNER,
    'src/overlap/overlap.cpp: wait_for_chunk': PARTNER,
    'src/slot/device_waits.cpp: wait': CALLERS,
    'src/copy/staging/workers.cpp: StagingWorkers::sleep': THREAD,
    'src/memory/releaser.cpp: stop': EXIT,
    'src/memory/releaser.cpp: work': THREAD,
    'src/observe/hang_report.cpp: work': THREAD,
    'src/observe/trace_times.cpp: start_clock': 'waits for one event on a stream of its own, which has nothing else to do',
    'src/slot/reclaimer.cpp: Reclaimer::stop': EXIT,
    'src/slot/reclaimer.cpp: Reclaimer::work': THREAD,
    'src/slot/reclaimer.cpp: wait_for_all_devices': CALLERS,
    'src/comm/ccl_watcher.cpp: stop': EXIT,
    'src/comm/ccl_watcher.cpp: abort_all': MOMENT,
    'src/comm/ccl_watcher.cpp: watch': THREAD,
    'src/comm/ccl_watcher.cpp: destroy_in_background': THREAD,
    'src/comm/serial_order.cpp: wait_for_all_orders': CALLERS,
    'src/comm/staged.cpp: Stager::work': THREAD,
    'src/comm/staged.cpp: Stager::run_piece': THREAD,
    'src/comm/staged.cpp: Stager::enqueue_pieces': 'a host function of a stream waits, and no caller',
}

seen = 0
used = set()
complaints = []
for path in repository.files('src', endings=('.cpp', '.hpp')):
    text, found = functions.of(path)
    for function, opening, close in found:
        body = text[opening:close]
        if not WAITS.search(body):
            continue
        seen += 1
        place = f'{repository.name(path)}: {function}'
        excuse = next((each for each in (place, repository.name(path)) if each in EXCUSED), None)
        if excuse is not None:
            used.add(excuse)
        elif not ANNOUNCED.search(body):
            complaints.append(f'{place} waits, and no ScopedWait announces that: write one, or excuse the function here')
complaints += [f'{each} is excused, and does not wait' for each in EXCUSED if each not in used]
if seen < 20:
    complaints.append(f'only {seen} functions that wait were found: this rule no longer understands the sources')
print(f'{seen} functions wait')
repository.finish(complaints)
