# SPDX-License-Identifier: Apache-2.0
"""Faults of the parts that are modelled. scripts/faults/faults.py puts one at a time into a copy of the sources, and expects a check to find it.

A fault is a file, a text that occurs once in it, what replaces it, the program, and a check of it that finds the fault.
"""
ENGINE, QUEUE, QUEUE_HEADER = 'backends/host/engine.cpp', 'backends/host/task_queue.cpp', 'backends/host/task_queue.hpp'
LOCK, CACHE = 'src/base/spin_lock.hpp', 'src/base/batch_cache.hpp'
RING, JOB, WORKERS, STAGE = (f'src/copy/staging/{name}' for name in ('ring.hpp', 'job.cpp', 'workers.cpp', 'stage.cpp'))
AHEAD = 'src/stream/work_ahead.hpp'
USES, POINT, SHELVES = 'src/stream/uses.cpp', 'src/stream/stream_point.cpp', 'src/memory/pinned_shelves.cpp'
SEQ, ACQ, REL, BOTH, NONE = (f'std::memory_order_{order}' for order in ('seq_cst', 'acquire', 'release', 'acq_rel', 'relaxed'))


def weaker(file, text, before, after, program, check):
    """One memory order of a text becomes weaker."""
    return file, text.format(before), text.format(after), program, check


FAULTS = [
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
    (POINT, '  if (end != nullptr) return_event(end, device, {});\n', '', 'points', 'last_point'),
    (USES, '  if (progress != Progress::complete) return progress;\n  const std::lock_guard lock{slot.lock};', '  const std::lock_guard lock{slot.lock};', 'points',
     'end_is_complete'),
    (USES, 'if (end.progress != Progress::pending || end.event == nullptr) return end.progress;',
     'if (end.event == nullptr) return Progress::complete;', 'points', 'end_is_complete'),
    (USES, '  if (has_points(slot) && end_of(slot).progress == Progress::pending) leave_end(slot, record_end(slot));\n', '', 'points',
     'end_is_complete'),
    (USES, '  while (slot.held.load(std::memory_order_acquire) > 0) sync::yield();', '', 'points', 'make_wait'),
    (USES, '  if (progress != Progress::complete) return progress;\n  const std::lock_guard lock{use', '  const std::lock_guard lock{use', 'points',
     'marks'),
    (USES, '  return use.slot->marks + 1;\n', '  return use.slot->marks;\n', 'points', 'marks'),
    (POINT, 'event_ != nullptr) return poll_event(event_);', 'event_ != nullptr) return Progress::complete;', 'points', 'poll'),
    (POINT, '  if (has_ended(stream_)) return poll_end(*stream_.slot);\n', '  if (has_ended(stream_)) return Progress::complete;\n', 'points',
     'stream_ends'),
    (POINT, '    end_point(*stream_.slot);\n', '    return;\n', 'points', 'last_point'),
    (POINT, '  device_ = stream.device();\n  end_point(*stream_.slot);\n', '  device_ = stream.device();\n', 'points', 'last_point'),
    (SHELVES, 'progress == Progress::pending || progress == Progress::stalled', 'progress == Progress::stalled', 'pinned', 'hand_out_again'),
]
