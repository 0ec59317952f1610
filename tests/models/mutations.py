# SPDX-License-Identifier: Apache-2.0
"""Puts faults into a copy of the sources, one at a time, and expects a model check to find each. Arguments: a folder for the copy, and
perhaps numbers of mutations. Prints the table of README.md.

A mutation is a file, a text that occurs once in it, what replaces it, the program, and a check of it that finds the fault.
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEDULES = '100000'

ENGINE, QUEUE, QUEUE_HEADER = 'backends/host/engine.cpp', 'backends/host/task_queue.cpp', 'backends/host/task_queue.hpp'
LOCK, CACHE = 'src/base/spin_lock.hpp', 'src/base/batch_cache.hpp'
RING, JOB, WORKERS, STAGE = (f'src/copy/staging/{name}' for name in ('ring.hpp', 'job.cpp', 'workers.cpp', 'stage.cpp'))
AHEAD = 'src/stream/work_ahead.hpp'
NODE, NODES = 'src/stream/event_node.hpp', 'src/stream/event_node.cpp'
USES, POINT, SHELVES = 'src/stream/uses.cpp', 'src/stream/stream_point.cpp', 'src/memory/pinned_shelves.cpp'
SEQ, ACQ, REL, BOTH, NONE = (f'std::memory_order_{order}' for order in ('seq_cst', 'acquire', 'release', 'acq_rel', 'relaxed'))


def weaker(file, text, before, after, program, check):
    """One memory order of a text becomes weaker."""
    return file, text.format(before), text.format(after), program, check


MUTATIONS = [
    (ENGINE, 'monitor_wake_.notify_one();  // the worker that puts it back', '// the worker that puts it back', 'host', 'put_back'),
    (ENGINE, '  asleep->wake_.notify_one();\n', '', 'host', 'submit_and_wait'),
    (ENGINE, '  if (*place == nullptr) return false;  // a queue has just been handed over\n',
     '  if (*place == nullptr) return true;\n', 'host', 'retire'),
    weaker(ENGINE, 'asleep_.store(true, {})', SEQ, REL, 'host', 'submit_and_wait'),
    weaker(ENGINE, 'asleep_.load({})', SEQ, ACQ, 'host', 'submit_and_wait'),
    weaker(ENGINE, 'assigned_.store(true, {})', SEQ, REL, 'host', 'submit_and_wait'),
    weaker(ENGINE, 'assigned_.load({})', SEQ, ACQ, 'host', 'submit_and_wait'),
    weaker(ENGINE, 'assigned_.load({})', SEQ, NONE, 'host', 'submit_and_wait'),
    (QUEUE, '  waiters_wake_.notify_all();\n', '', 'host', 'wait_and_wake'),
    (QUEUE, '  busy_ = !is_idle();\n', '  busy_ = false;\n', 'host', 'submit_and_rest'),
    weaker(QUEUE, 'submitted_.store(number, {})', REL, NONE, 'host', 'submit_and_rest'),
    weaker(QUEUE_HEADER, 'submitted_.load({})', ACQ, NONE, 'host', 'submit_and_rest'),
    weaker(QUEUE_HEADER, 'completed_.load({})', ACQ, NONE, 'host', 'submit_and_wait'),
    weaker(QUEUE, 'completed_.store(number, {})', SEQ, REL, 'host', 'wait_and_wake'),
    weaker(QUEUE, 'first_awaited_.load({}) <= number', SEQ, ACQ, 'host', 'wait_and_wake'),
    weaker(QUEUE, 'first_awaited_.store(number, {})', SEQ, REL, 'host', 'wait_and_wake'),
    weaker(QUEUE, 'completed_.load({}) < number', SEQ, ACQ, 'host', 'wait_and_wake'),
    weaker(LOCK, 'exchange(true, {})', ACQ, NONE, 'base', 'spin_lock'),
    weaker(LOCK, 'store(false, {})', REL, NONE, 'base', 'spin_lock'),
    weaker(CACHE, 'place.exchange(nullptr, {})', ACQ, NONE, 'base', 'batch_cache'),
    weaker(CACHE, 'place.compare_exchange_strong(none, batch, {}', REL, NONE, 'base', 'batch_cache'),
    weaker(CACHE, 'own_.batches = stack_.exchange(nullptr, {})', ACQ, NONE, 'base', 'batch_cache'),
    weaker(CACHE, 'compare_exchange_weak(batch->next_batch, batch, {}', REL, NONE, 'base', 'batch_cache'),
    weaker(CACHE, 'rest = stack_.exchange(nullptr, {})', ACQ, NONE, 'base', 'batch_cache_at_thread_end'),
    weaker(CACHE, 'compare_exchange_strong(none, rest, {}', REL, NONE, 'base', 'batch_cache_at_thread_end'),
    (AHEAD, '    if (found % WorkAhead::one_begun >= WorkAhead::one_active) return;\n', '', 'base', 'work_ahead_of_short_copies'),
    (AHEAD, '      if (found == alone_) left', '      if (alone_ != 0) left', 'base', 'work_ahead_of_short_copies'),
    (AHEAD, '- found % one_active) + one_begun', '- found % one_active)', 'base', 'work_ahead_of_copies_back'),
    weaker(RING, '{{*place_}}.load({})', ACQ, NONE, 'staging', 'to_host'),
    weaker(RING, '{{*place_}}.store(static_cast<std::uint32_t>(number), {})', REL, NONE, 'staging', 'to_device'),
    weaker(JOB, 'announced.load({})', ACQ, NONE, 'staging', 'to_device'),
    weaker(STAGE, 'announced.store(++announced_, {})', REL, NONE, 'staging', 'to_device'),
    weaker(JOB, 'moving.load({})', SEQ, ACQ, 'staging', 'fail_to_host'),
    weaker(JOB, 'moving.fetch_add(1, {})', SEQ, BOTH, 'staging', 'fail_to_host'),
    weaker(JOB, 'cancelled.load({})) move', SEQ, ACQ, 'staging', 'fail_to_host'),
    weaker(JOB, 'cancelled.store(true, {})', SEQ, REL, 'staging', 'fail_to_host'),
    weaker(JOB, 'moving.fetch_sub(1, {})', REL, NONE, 'staging', 'fail_to_host'),
    weaker(WORKERS, 'fetch_sub(1, {}) != 1) return;\n  ring.moved', BOTH, NONE, 'staging', 'to_device_in_parts'),
    weaker(WORKERS, 'unfinished.fetch_sub(1, {})', BOTH, NONE, 'staging', 'to_host'),
    weaker(WORKERS, 'sleepers_.load({})', SEQ, ACQ, 'staging', 'after_a_pause'),
    weaker(WORKERS, 'sleepers_.fetch_add(1, {})', SEQ, BOTH, 'staging', 'after_a_pause'),
    (WORKERS, 'is_watched_ = false;\n}', '}', 'staging', 'to_device'),
    (RING, '(*next == Moved::to_device ? filled() : emptied()).set(first_unmoved_)',
     '(*next == Moved::to_device ? filled() : emptied()).set(piece + 1)', 'staging', 'row_to_device'),
    (RING, ' = &moved_[first_unmoved_ % window]) != Moved::no', ' = &moved_[piece % window]) != Moved::no', 'staging', 'row_to_device'),
    (RING, '  const std::lock_guard lock{moved_lock_};\n  moved_', '  moved_', 'staging', 'row_to_device'),
    (RING, 'begins_[oldest_ % window] + bytes < end ||', 'false ||', 'staging', 'places'),
    (RING, 'position_ += bytes - offset;  // no piece', 'position_ += 0;  // no piece', 'staging', 'places'),
    (RING, ' || pieces - oldest_ == window)', ')', 'staging', 'places'),
    (RING, '  position_ = end;\n', '', 'staging', 'places'),
    (JOB, 'return is_started && ring.emptied().has_reached(pieces[next_piece].place.emptied);', 'return is_started;', 'staging',
     'to_device_around_the_ring'),
    (JOB, 'const bool is_started = may_start || ring', 'const bool is_started = true || ring', 'staging', 'there_and_back'),
    (JOB, 'has_reached(first_piece + next_piece + 1)', 'has_reached(first_piece + next_piece)', 'staging', 'to_host'),
    (STAGE, 'is_empty ? backend::ok : wait_for(ring_.emptied(), emptied)', 'backend::ok', 'staging', 'to_host_around_the_ring'),
    (STAGE, 'const bool is_empty = emptied <= job_->first_piece;', 'const bool is_empty = emptied <= job_->first_piece + 1;', 'staging',
     'to_host_around_the_ring'),
    (STAGE, '!to_device ? wait_for(ring_.finished(), job_->number) : s', '!to_device ? s : s', 'staging', 'to_host'),
    (STAGE, 'if (const backend::status s = wait_for(ring_.filled(), end); s != backend::ok) return s;', '', 'staging', 'to_device'),
    (STAGE, '    if (index + 1 < job_->count() && unwritten_', '    if (unwritten_', 'staging', 'row_of_small_copies'),
    (STAGE, '!job_->may_start ? write(ring_.started(), job_->number) : backend::ok', '!job_->may_start ? backend::ok : backend::ok', 'staging',
     'to_device'),
    (WORKERS, 'job->direction() == Direction::to_host && job->stream_waits_for_end', 'job->stream_waits_for_end', 'staging', 'there_and_back'),
    (POINT, '  if (is_free) free_waiting_slot(slot);\n', '', 'points', 'last_point'),
    (USES, '  slot.waits_for_points = slot.points > 0;\n', '  slot.waits_for_points = false;\n', 'points', 'stream_ends'),
    (POINT, '    end = std::move(slot.end.event);\n', '', 'points', 'last_point'),
    (POINT, '  if (progress != Progress::complete) return progress;\n  const std::lock_guard lock{slot.lock};', '  const std::lock_guard lock{slot.lock};', 'points',
     'end_is_complete'),
    (POINT, 'if (end.progress != Progress::pending || !end.event) return end.progress;',
     'if (!end.event) return Progress::complete;', 'points', 'end_is_complete'),
    (USES, '  if (has_points(slot) && end_of(slot).progress == Progress::pending) leave_end(slot, record_end(slot));\n', '', 'points',
     'end_is_complete'),
    (USES, '  while (slot.held.load(std::memory_order_acquire) > 0) sync::yield();', '', 'points', 'make_wait'),
    (POINT, '  if (progress != Progress::complete) return progress;\n  const std::lock_guard lock{use', '  const std::lock_guard lock{use', 'points',
     'marks'),
    (POINT, '  return use.slot->marks + 1;\n', '  return use.slot->marks;\n', 'points', 'marks'),
    (POINT, 'if (event_) return poll_event(event_.get());', 'if (event_) return Progress::complete;', 'points', 'poll'),
    (POINT, '  if (has_ended(stream_)) return poll_end(*stream_.slot);\n', '  if (has_ended(stream_)) return Progress::complete;\n', 'points',
     'stream_ends'),
    (POINT, 'if (!event_) end_point(*stream_.slot);', '', 'points', 'last_point'),
    (POINT, 'if (event_) end_point(*stream_.slot);', '', 'points', 'last_point'),
    (NODE, '[[nodiscard]] inline bool is_reusable(const EventNode& node, int device) noexcept {\n  return node.device == device && ',
     '[[nodiscard]] inline bool is_reusable(const EventNode& node, int device) noexcept {\n  return true || ', 'events', 'a_reference_means_one_record'),
    (NODE, '    record(*first);\n    replace_later(nodes, {});\n', '    replace_later(nodes, {});\n    record(*first);\n', 'events', 'ask'),
    (NODE, '  if (nodes.later.load(std::memory_order_acquire) != nullptr) [[unlikely]]\n      hold', '  if (false) [[unlikely]]\n      hold', 'events', 'ask'),
    (NODE, '  const std::lock_guard lock{changing_nodes};\n', '', 'events', 'two_records'),
    (NODE, '    if (each != nullptr) share_records(*each);\n', ';\n', 'events', 'two_records'),
    (NODE, 'const bool is_usual = first != nullptr && is_recorded_here(*first) && ', 'const bool is_usual = first != nullptr && ', 'events', 'two_records'),
    weaker(NODES, 'nodes.first.store(first.release(), {})', REL, NONE, 'events', 'ask'),
    weaker(NODE, 'node_{{nodes.first.load({})}}', ACQ, NONE, 'events', 'ask'),
    (NODES, '  later->references.fetch_add(1, std::memory_order_seq_cst);\n', '', 'events', 'hold_beside_records'),
    (NODES, '  const std::lock_guard lock{later_lock};\n  EventNode* const later', '  EventNode* const later', 'events', 'hold_beside_records'),
    (NODES, '  later = EventRef::adopt(old);  // destroyed behind the lock\n', '', 'events', 'hold_beside_records'),
    (NODES, 'if (!is_only && node->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;',
     'if (!is_only) node->references.fetch_sub(1, std::memory_order_acq_rel);', 'events', 'last_references'),
    weaker(NODE, 'node.references.load({}) == 1', SEQ, ACQ, 'events', 'two_records'),
    weaker(NODE, 'node.thread.store(several_threads, {})', SEQ, REL, 'events', 'two_records'),
    (SHELVES, 'progress == Progress::pending || progress == Progress::stalled', 'progress == Progress::stalled', 'pinned', 'hand_out_again'),
]


def copy_tree(folder):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns('.git', 'build*', '.cache', '__pycache__'))
    subprocess.run(['meson', 'setup', 'build', '-Dgpu_backend=host', '-Dtools=disabled', '-Dexamples=disabled', '-Dbenchmarks=disabled',
                    '-Dkokkos=disabled'], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def build(folder, programs):
    targets = [f'tests/models/model_{program}' for program in programs]
    subprocess.run(['ninja', '-C', 'build', *targets], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def find(folder, program, check):
    """The checker's line, and whether the check failed as it should."""
    run = subprocess.run([f'build/tests/models/model_{program}', check, '--schedules', SCHEDULES, '--expect-failure'], cwd=folder,
                         stdout=subprocess.PIPE, text=True, timeout=600)
    return run.stdout.strip(), run.returncode == 0


def try_mutation(folder, mutation):
    file, before, after, program, check = mutation
    path = folder / file
    text = path.read_text()
    if text.count(before) != 1:
        return f'{file}: {before!r} occurs {text.count(before)} times', False
    path.write_text(text.replace(before, after))
    try:
        build(folder, [program])
        return find(folder, program, check)
    finally:
        path.write_text(text)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    chosen = [int(number) for number in sys.argv[2:]] or range(len(MUTATIONS))
    copy_tree(folder)
    missed = 0
    for number in chosen:
        said, found = try_mutation(folder, MUTATIONS[number])
        missed += not found
        file, before, after = MUTATIONS[number][:3]
        print(f'{number:2} {"found" if found else "NOT FOUND"}: {os.path.basename(file)}: {before.strip()!r} -> {after.strip()!r}\n   {said}', flush=True)
    print(f'{len(list(chosen)) - missed} found, {missed} not found')
    sys.exit(1 if missed else 0)


main()
