# SPDX-License-Identifier: Apache-2.0
"""No lock of the library is held across a call of the runtime, which may block: a stream may be full, and a device busy. What calls the runtime under
a lock, or a function of src/ that does, is listed here with a reason. Functions are told apart by their last name alone."""
import re

import functions
import repository

LOCK = re.compile(r'\bstd::(?:lock_guard|unique_lock|scoped_lock)\b[^;{}()]*?(\w+)\s*[{(]([^;]*);')
RUNTIME = re.compile(r'\b(?:backend|ccl)::(\w+)\(')
CALL = re.compile(r'([.>]|\b(?:\w+::)+)?\b(\w+)\s*(?:<[^<>();{}]*>)?\(')
THREAD = re.compile(r'start_thread\(\[.*?\}\)', re.DOTALL)  # another thread runs that
# These functions of the backends answer without a call of the runtime.
NO_CALL = {'is_not_ready', 'classify', 'error_name', 'error_text', 'forget_error', 'default_stream', 'per_thread_default_stream', 'forgets_host_functions',
           'frees_wait_for_devices', 'orders_graph_launches', 'copies_pageable_asynchronously', 'prefers_registered_pages',
           'can_query_beside_begin_of_capture'}
QUERY = 'a query, which does not block'
GRAPH = "the graph's own lock: the runtimes allow one call of a graph at a time"
CAPTURE = "the capture's own lock: what becomes a node is not executed, so no stream can be full"
COMMUNICATOR = "the communicator's own lock: its operations are enqueued in one order"
THREAD_OF_LIBRARY = 'only the exit of the process waits for this lock, so that no call of the thread is under way then'
TRACE = 'a query of the trace, which does not block'
EXCUSED = {
    'src/observe/race_checker.cpp: with_state': 'writes a report, and ends the process',
    'src/comm/ccl_state.cpp: CclState::enqueue': COMMUNICATOR,
    'src/comm/ccl_state.cpp: CclState::look_for_errors': QUERY,
    'src/comm/ccl_watcher.cpp: abort_all': 'waits for the lock for 20 ms at most, and aborts with it or without it',
    'src/comm/ccl_watcher.cpp: watch': THREAD_OF_LIBRARY,
    'src/comm/mpi_process.cpp: prepare_mpi': 'MPI is initialised once',
    'src/comm/mpi_state.cpp: MpiState::enqueue': COMMUNICATOR,
    'src/comm/serial_order.hpp: make_wait': COMMUNICATOR,
    'src/copy/staging/rings.cpp: StagingRings::ring_for': 'allocates the first ring of a stream: takes a millisecond, and waits for no stream',
    'src/copy/staging/stage.cpp: stage': "the ring's own lock, which only copies of one stream take: the order of its pieces is the order of the calls",
    'src/device/partition.cpp: partition': 'divides a device once',
    'src/graph/graph.cpp: Graph::dot': GRAPH,
    'src/graph/graph.cpp: Graph::launch': GRAPH,
    'src/graph/graph.cpp: Graph::node_count': GRAPH,
    'src/graph/graph.cpp: become_node': GRAPH,
    'src/graph/graph.cpp: refuse_memory_nodes': GRAPH,
    'src/memory/releaser.cpp: are_devices_idle': QUERY,
    'src/observe/hang_report.cpp: report_unless_stopped': THREAD_OF_LIBRARY,
    'src/observe/trace.cpp: collect': TRACE,
    'src/observe/trace.cpp: resolve_pending': TRACE,
    'src/observe/trace.cpp: start_trace': 'the trace begins once',
    'src/observe/trace_activities.cpp: start_activities': 'the trace begins once',
    'src/observe/trace_times.cpp: has_clock': 'waits for one event on a stream of its own, which has nothing else to do',
    'src/observe/trace_times.cpp: read_time': TRACE,
    'src/slot/idle.hpp: is_idle': QUERY,
    'src/overlap/overlap.cpp: wait_for_record': '`record()` names a place in an array there',
    'src/stream/stream_pool.cpp: try_acquire': QUERY,
    'src/function/graph_functions.cpp: GraphFunctions::capture': CAPTURE,
}

bodies = {}  # by function
places = {}
for path in repository.files('src', endings=('.cpp', '.hpp')):
    text, found = functions.of(path)
    for function, opening, close in found:
        if function != 'catch':
            bodies.setdefault(function, []).append(text[opening:close])
            places.setdefault(function, []).append(repository.name(path))
by_last_name = {}
for function in bodies:
    by_last_name.setdefault(function.split('::')[-1], []).append(function)


def called(caller, body):
    """The functions of src/ that it may call. An object's member is found if only one function has that name."""
    scopes = {'', caller.rpartition('::')[0]}
    for qualifier, name in CALL.findall(THREAD.sub('', body)):
        named = by_last_name.get(name, ())
        if qualifier in ('.', '>'):
            yield from named if len(named) == 1 and len(bodies[named[0]]) == 1 else ()
        elif qualifier.startswith('detail::') or not qualifier:
            yield from (each for each in named if each.rpartition('::')[0] in scopes)
        elif not qualifier.startswith('std::'):
            yield from (each for each in named if each.endswith(qualifier + name))


def runtime_calls(body):
    return {name for name in RUNTIME.findall(body) if name not in NO_CALL}


calls = {function: {each for body in texts for each in called(function, body)} for function, texts in bodies.items()}
blocking = {function for function, texts in bodies.items() if any(map(runtime_calls, texts))}
while more := {function for function, used in calls.items() if used & blocking} - blocking:
    blocking |= more


def locked_parts(body):
    """What of a function runs while it holds a lock: from the lock to its unlock() or to the end of its block."""
    for lock in LOCK.finditer(body):
        depth = 0
        end = lock.end()
        unlock = lock.group(1) + '.unlock()'
        while end < len(body) and depth >= 0 and not body.startswith(unlock, end):
            depth += {'{': 1, '}': -1}.get(body[end], 0)
            end += 1
        yield body[lock.end():end]


complaints = []
used = set()
for function, texts in sorted(bodies.items()):
    for body, path in zip(texts, places[function]):
        found = set()
        for part in locked_parts(body):
            found |= runtime_calls(part) | (set(called(function, part)) & blocking)
        place = f'{path}: {function}'
        if found and place in EXCUSED:
            used.add(place)
        elif found:
            complaints.append(f'{place} may call the runtime under a lock ({", ".join(sorted(found))}): release it before, or excuse the function here')
complaints += [f'{each} is excused, and calls nothing under a lock' for each in EXCUSED if each not in used]
if len(blocking) < 100:
    complaints.append(f'only {len(blocking)} functions that call the runtime were found: this rule no longer understands the sources')
print(f'{len(blocking)} functions call the runtime, {len(used)} of them under a lock')
repository.finish(complaints)
