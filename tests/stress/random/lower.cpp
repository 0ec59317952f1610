// SPDX-License-Identifier: Apache-2.0
#include "lower.hpp"

#include <array>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "bytes.hpp"
#include "order.hpp"
#include "rows.hpp"

namespace random_programs {
namespace {

/// Whether some of the copies go there, and some back.
template <class Copies>
std::pair<bool, bool> directions_of(const Copies& copies) {
  const auto back = std::ranges::count_if(copies, [](auto& each) { return each.back; });
  return {back < std::ssize(copies), back > 0};
}

/// What is known of an operation, by its place in the program.
struct Place {
  std::vector<Step> marks;  // that later operations want behind it
  Places work;              // its own and what came before it
  Places held;              // see Line::held
  int line = -1;            // -1: it enqueued nothing
  bool is_function = false;
  size_t opens_at = 0;
  Places known;
  int thread = 0;
};

class Lowering {
 public:
  Lowering(const Program& program, const Machine& machine)
      : program_{program},
        machine_{machine},
        buffers_(program.buffers.size()),
        known_(static_cast<size_t>(program.threads)) {
    for (size_t i : range(program.buffers.size()))
      buffers_[i].bytes.resize(program.buffers[i].size);
    for (int slot : range(static_cast<int>(program.streams.size())))
      lines_of_slots_.push_back(new_line(slot, -1));
  }

  Calls lower() {
    for (size_t i : range(program_.operations.size())) {
      const Operation& o = program_.operations[i];
      begin(o, static_cast<int>(i));
      dispatch(o);
      end();
    }
    leave_visit();
    finish();
    for (Lowered& each : calls_.operations) {
      auto& marks = at(each.place).marks;
      each.steps.insert(each.steps.end(), marks.begin(), marks.end());
    }
    return std::move(calls_);
  }

 private:
  Place& at(auto place) { return nth(places_, place); }
  Place& here() { return at(place_); }

  // The parts of an operation.
  void begin(const Operation& o, int place) {
    enter_visit(o);
    place_ = place;
    random_ = Random{o.choice};
    at(place).thread = o.thread;
    current_ = Lowered{};
    current_.place = place;
    current_.thread = o.thread;
    current_.visit = visit_;
    Places due;
    for (size_t gate : range(static_cast<size_t>(place)))
      if (closed_[gate] && at(gate).opens_at <= static_cast<size_t>(place)) due.set(gate);
    open_gates(due);
    if (visit_ != 0) open_gates_if_calls_may_wait();
  }

  void dispatch(const Operation& o) {
    switch (o.verb) {
      case Verb::renew_buffer:
        return renew_buffer(o);
      case Verb::resize_buffer:
        return resize_buffer(o);
      case Verb::set_stream:
        return set_stream(o);
      case Verb::completion:
        return completion(o);
      case Verb::drop_buffer:
        return drop(o.buffer);
      case Verb::copy:
        return copy(o);
      case Verb::copy_2d:
        return copy_2d(o);
      case Verb::row:
        return row(o);
      case Verb::list:
        return list(o);
      case Verb::fill:
      case Verb::fill_2d:
        return fill(o);
      case Verb::scratch_pinned:
      case Verb::scratch_device:
        return scratch(o);
      case Verb::read_function:
      case Verb::write_function:
        return memory_function(o);
      case Verb::throw_function:
      case Verb::wait_function:
      case Verb::busy_function:
      case Verb::gate:
        return function(o);
      case Verb::host_write:
        return host_write(o);
      case Verb::check:
        return check(o);
      case Verb::record_event:
      case Verb::wait_event:
      case Verb::synchronize_event:
      case Verb::move_event:
      case Verb::drop_event:
        return event(o);
      case Verb::wait_stream: {
        const int from = line_of(o.other_stream);
        const int to = line_of(o.stream);
        touch_line(from);
        touch_line(to);
        emit(Call::wait_stream, o.stream).other_stream = o.other_stream;
        if (from != to) wait_for(to, from);
        return;
      }
      case Verb::synchronize:
        return synchronize(o.stream);
      case Verb::query:
        return query(o);
      case Verb::show_handle:
        touch_line(line_of(o.stream));
        emit(Call::show_handle, o.stream);
        return;
      case Verb::elapsed:
        return elapsed(o);
      case Verb::renew_stream:
        return renew_stream(o);
      case Verb::trim:
        open_gates(closed_);
        emit(Call::trim).form = random_.below(2);
        return;
      case Verb::overlap:
        return overlap(o);
      case Verb::graph:
        return graph(o);
      case Verb::refuse: {
        touch_line(line_of(o.stream));
        Step step = make(Call::refuse, o.stream);
        step.mark = place_;
        step.form = random_.below(12);
        emit(step);
        return;
      }
      case Verb::starve:
        return starve(o);
      case Verb::fork_child:
        emit(Call::fork_child);
        return;
    }
  }

  /// Two threads must not name one buffer at the same time.
  void end() {
    for (const Step& step : current_.steps)
      for (const int number :
           {step.call == Call::wait_function ? -1 : step.buffer, step.source, step.third})
        if (number >= 0 && buffer(number).last_operation != place_)
          throw std::logic_error{"operation " + std::to_string(place_) + " names buffer " +
                                 std::to_string(number) + ", which other threads may use"};
    here().known = known();
    calls_.operations.push_back(std::move(current_));
  }

  void enter_visit(const Operation& o) {
    if (o.visit == visit_ && (o.visit == 0 || o.thread == visit_parent_)) {
      if (o.visit == 0) runner_ = o.thread;
      return;
    }
    leave_visit();
    runner_ = o.thread;
    if (o.visit == 0) return;
    visit_ = o.visit;
    visit_parent_ = o.thread;
    known_.push_back(known());
    runner_ = static_cast<int>(known_.size()) - 1;
  }

  /// The thread of the visit ends, and no other thread can use its default streams.
  void leave_visit() {
    if (visit_ == 0) return;
    for (int line : range(lines_.count()))
      if (lines_[line].thread == runner_) lines_[line].gone = true;
    const Places learned = known();
    runner_ = visit_parent_;
    known() |= learned;
    visit_ = 0;
  }

  /// Compares and drops all buffers, then waits for each stream with an exception, which the wait
  /// throws.
  void finish() {
    int place = static_cast<int>(program_.operations.size());
    const auto next = [&](Verb verb) {
      Operation o;
      o.verb = verb;
      o.choice = static_cast<unsigned>(program_.seed * 31U) + static_cast<unsigned>(place);
      begin(o, place++);
      return o;
    };
    next(Verb::synchronize);
    std::vector<int> last(static_cast<size_t>(program_.threads), -1);
    for (const Lowered& each : calls_.operations) nth(last, each.thread) = each.place;
    for (const int other : last)
      if (other >= 0) join(other);
    end();
    for (int number : range(static_cast<int>(buffers_.size()))) {
      if (!buffer(number).alive) continue;
      Operation o = next(Verb::check);
      o.buffer = number;
      o.bytes = buffer_slot(number).size;
      o.stream = static_cast<int>(random_.below(program_.streams.size()));
      check(o);
      drop(number);
      end();
    }
    next(Verb::synchronize);
    open_gates(closed_);
    for (int stream : range(stream_count()))
      if (lines_[line_of(stream)].exception >= 0) synchronize(stream);
    end();
  }

  // Streams.
  const StreamSlot& slot(int stream) const { return nth(program_.streams, stream); }
  int stream_count() const { return static_cast<int>(program_.streams.size()); }
  int new_line(int stream, int thread) {
    const StreamSlot& kind = slot(stream);
    if (kind.kind == borrowed) return nth(lines_of_slots_, kind.owner);
    if (kind.kind == thread_default && thread < 0) return -1;
    if (kind.kind == device_default)
      for (int line : range(lines_.count()))
        if (lines_[line].is_device_default && lines_[line].device == kind.device) return line;
    Line line;
    line.device = kind.device;
    line.slot = stream;
    line.blocking =
        kind.kind == blocking || kind.kind == device_default || kind.kind == thread_default;
    line.is_device_default = kind.kind == device_default;
    line.thread = thread;
    return lines_.add(line);
  }

  int line_of(int stream) {
    if (slot(stream).kind != thread_default) return nth(lines_of_slots_, stream);
    const auto [found, fresh] = thread_lines_.try_emplace({runner_, slot(stream).device}, -1);
    if (fresh) found->second = new_line(stream, runner_);
    return found->second;
  }

  /// Two threads that use one stream, or two that order by the default stream's rule, take turns.
  /// Only then is the order known.
  void touch_line(int line) {
    touch(lines_[line].last_operation);
    if (lines_[line].blocking) touch(nth(legacy_last_, lines_[line].device));
  }
  void touch(int& last_operation) {
    if (last_operation >= 0 && last_operation != place_) join(last_operation);
    last_operation = place_;
  }
  /// This operation is submitted after that one, which another thread may submit.
  void join(int other) {
    if (at(other).thread == current_.thread) return;
    current_.after.push_back(other);
    known() |= at(other).known;
  }

  bool is_reachable(int line) const {
    return !lines_[line].gone && (lines_[line].thread < 0 || lines_[line].thread == runner_);
  }

  // Order.
  Places& known() { return nth(known_, runner_); }
  void order(int stream, const Places& required) {
    const int line = line_of(stream);
    touch_line(line);
    for (;;) {
      const Places missing = required & ~(lines_.before(line) | known());
      if (missing.none()) return;
      add_wait(stream, line, last_of(missing));
    }
  }

  void add_wait(int stream, int line, int missing) {
    const int from = at(missing).line;
    const unsigned means = random_.below(13);
    if (const std::optional<int> event = event_that_covers(missing); event && means < 6) {
      EventState& state = nth(events_, *event);
      touch(state.last_operation);
      emit(Call::wait_event, stream).event = *event;
      wait_for(line, state);
      return;
    }
    if (means == 11) return add_host_wait(missing);
    if (!is_reachable(from) || means == 10 || means == 9)
      return wait_by_mark(stream, line, missing);
    touch_line(from);
    const int other = lines_[from].slot;
    if (means == 12 && values_ < max_values) {
      Step& step = emit(Call::wait_value, stream);
      step.other_stream = other;
      step.value = values_++;
    } else if (means < 4 || means == 12) {
      emit(Call::wait_stream, stream).other_stream = other;
    } else if (means < 6) {
      emit(Call::wait_recorded, stream).other_stream = other;
    } else {
      const int event = static_cast<int>(random_.below(event_slots));
      record(event, other);
      emit(Call::wait_event, stream).event = event;
    }
    wait_for(line, from);
  }

  std::optional<int> event_that_covers(int place) {
    for (int event : range(event_slots))
      if (nth(nth(events_, event).covers, place)) return event;
    return std::nullopt;
  }

  /// An event that a graph uses cannot be recorded on another device.
  void record(int event, int stream) {
    EventState& state = nth(events_, event);
    touch(state.last_operation);
    const int line = line_of(stream), device = slot(stream).device;
    if (state.in_graph && state.device != device) reset_event(event);
    emit(Call::record_event, stream).event = event;
    state.covers = lines_.before(line);
    state.held = lines_.held(line);
    state.device = device;
  }

  void reset_event(int event) {
    EventState& state = nth(events_, event);
    emit(Call::drop_event).event = event;
    state = {.covers = {}, .held = {}, .last_operation = state.last_operation};
  }

  /// The event becomes a node of a graph of the device.
  void bind_event(int event, int device) {
    EventState& state = nth(events_, event);
    if (state.device < 0) state.device = device;
    state.in_graph = true;
  }

  void leave_mark(int place) {
    auto& marks = at(place).marks;
    if (!marks.empty()) return;
    marks.push_back(make(Call::leave_mark, lines_[at(place).line].slot));
    marks.back().mark = place;
  }

  void wait_by_mark(int stream, int line, int place) {
    leave_mark(place);
    emit(Call::wait_mark, stream).mark = place;
    wait_for(line, {at(place).work, at(place).held});
  }

  void host_wait(const Places& required) {
    for (;;) {
      const Places missing = required & ~known();
      if (missing.none()) return;
      add_host_wait(last_of(missing));
    }
  }

  void add_host_wait(int missing) {
    const int from = at(missing).line;
    const unsigned means = random_.below(8);
    if (means == 0 && is_single()) {
      Step step = make(Call::synchronize_device);
      step.device = lines_[from].device;
      const Places covered = lines_.covered_by_device(step.device);
      open_gates(closed_);  // of all streams
      emit(step);
      known() |= covered;
      return;
    }
    if (is_reachable(from) && means < 6) return synchronize(lines_[from].slot);
    leave_mark(missing);
    Step step = make(Call::synchronize_mark);
    step.mark = missing;
    step.form = random_.below(3);
    synchronize_covered(at(missing).work, at(missing).held, step);
  }

  void synchronize(int stream) {
    const int line = line_of(stream);
    touch_line(line);
    Step step = make(Call::synchronize, stream);
    step.form = random_.below(4);
    const bool by_query = step.form == 2 && lines_[line].exception < 0;
    if (!by_query) {
      if (lines_[line].exception >= 0) step.form %= 2;
      step.exception = std::exchange(lines_[line].exception, -1);
    }
    // A query need not count waits that no work has followed.
    synchronize_covered(by_query && !lines_[line].is_device_default
                            ? lines_[line].work
                            : lines_.covered_by_synchronize(line),
                        lines_.held(line), step);
    // which waits for an event: the stream may be about to become idle
    const bool by_future = step.form == 3;
    const bool others_may_free = lines_[line].frees_may_follow && !is_single();
    if (!lines_[line].blocking && !by_future && !others_may_free && random_.chance(20)) {
      step = make(Call::query, stream);
      step.answer = Answer::yes;
      emit(step);
    }
  }

  void synchronize_covered(const Places& covered, const Places& held, Step step) {
    open_gates_before_wait(held);
    emit(step);
    known() |= covered;
  }

  void wait_for(int line, int other) {
    lines_[line].tail |= lines_.before(other);
    lines_[line].held |= lines_.held(other);
  }
  void wait_for(int line, const EventState& event) {
    lines_[line].tail |= event.covers;
    lines_[line].held |= event.held;
  }
  void open_gates(const Places& gates) {
    for (size_t gate : range(max_places))
      if (gates[gate]) {
        emit(Call::open_gate).mark = static_cast<int>(gate);
        closed_.reset(gate);
      }
  }

  void open_gates_before_wait(const Places& held) {
    open_gates(machine_.gates_hold_all ? closed_ : held & closed_);
  }
  void open_gates_if_calls_may_wait() {
    if (machine_.calls_may_wait) open_gates(closed_);
  }
  /// The operation's work is on this stream now, after everything that is required.
  void commit(int stream) {
    const int line = line_of(stream);
    Places after = lines_.before(line) | known();
    nth(after, place_) = true;
    lines_[line].tail = after;
    lines_[line].work = after;
    here().work = after;
    nth(lines_[line].held, place_) = true;
    here().held = lines_.held(line);
    here().line = line;
  }

  // Memory.
  BufferState& buffer(int number) { return nth(buffers_, number); }
  const BufferSlot& buffer_slot(int number) const { return nth(program_.buffers, number); }
  bool is_host(int number) const {
    const BufferKind kind = buffer_slot(number).kind;
    return kind == pageable || kind == pinned || kind == registered;
  }
  void touch_buffer(int number) { touch(buffer(number).last_operation); }
  void touch_pair(const Operation& o) {
    touch_buffer(o.buffer);
    touch_buffer(o.source);
  }
  void note(int number, size_t begin, size_t end, bool writes) {
    if (begin < end) buffer(number).accesses.push_back({place_, begin, end, writes});
  }
  /// The library frees device memory after the work of the streams that were passed to
  /// record_stream(). The buffer's own stream must wait for all other users before the free.
  void note_use_on(int stream, int number) {
    BufferState& state = buffer(number);
    const int line = line_of(stream);
    if (buffer_slot(number).kind == pinned) lines_[line].frees_may_follow = true;
    if (buffer_slot(number).kind != BufferKind::device || line == state.home || random_.chance(30))
      return;
    Step step = make(Call::record_stream, stream);
    step.buffer = number;
    step.form = random_.below(2);
    emit(step);
    state.recorded.push_back(line);
    lines_[line].frees_may_follow = true;
  }

  Places conflicts(const Operation& o, bool writes) {
    return buffer(o.buffer).conflicts(o.at, o.end(), writes);
  }
  bool can_use(const Operation& o) { return can_use(o, o.buffer, o.end()); }
  bool can_use(const Operation& o, int number, size_t end) {
    return buffer(number).alive && end <= buffer_slot(number).size && end >= o.bytes;
  }
  /// The runtimes refuse to fill another device's memory.
  bool is_near(const Operation& o) const {
    return is_host(o.buffer) || buffer_slot(o.buffer).device == slot(o.stream).device;
  }
  /// Whether the operation can use both buffers, up to these ends. Then it does.
  bool take_pair(const Operation& o, size_t end, size_t source_end) {
    if (!can_use(o, o.buffer, end) || !can_use(o, o.source, source_end) || o.buffer == o.source)
      return false;
    touch_pair(o);
    return true;
  }

  unsigned char* bytes_at(int number, size_t at) { return buffer(number).bytes.data() + at; }
  void resize_buffer(const Operation& o) {
    BufferState& state = buffer(o.buffer);
    if (!state.alive || buffer_slot(o.buffer).kind != BufferKind::device ||
        !is_reachable(state.home))
      return;
    touch_buffer(o.buffer);
    open_gates_if_calls_may_wait();
    open_gates_before_free(state);
    order(state.home_slot, state.all_accesses());
    Step step = make(Call::resize_buffer, state.home_slot);
    step.buffer = o.buffer;
    step.bytes = buffer_slot(o.buffer).size;
    emit(step);
    commit(state.home_slot);
    state.recorded.clear();  // nobody uses the new block
    note(o.buffer, 0, step.bytes, true);
  }

  void set_stream(const Operation& o) {
    BufferState& state = buffer(o.buffer);
    const BufferSlot& kind = buffer_slot(o.buffer);
    if (!state.alive || kind.kind != BufferKind::device || slot(o.stream).device != kind.device)
      return;
    touch_buffer(o.buffer);
    const int line = line_of(o.stream);
    touch_line(line);
    emit(Call::set_stream, o.stream).buffer = o.buffer;
    if (line == state.home) return;
    state.recorded.push_back(state.home);
    state.home = line;
    state.home_slot = lines_[line].slot;
    lines_[line].frees_may_follow = true;
  }

  /// No event can be recorded on another thread's default stream. Freeing may wait for the device
  /// then.
  void open_gates_before_free(const BufferState& state) {
    const auto is_foreign = [&](int line) { return !lines_[line].gone && !is_reachable(line); };
    if (is_foreign(state.home) || std::ranges::any_of(state.recorded, is_foreign))
      open_gates(closed_);
  }

  void drop(int number) {
    BufferState& state = buffer(number);
    touch_buffer(number);
    if (!std::exchange(state.alive, false)) return;
    const BufferKind kind = buffer_slot(number).kind;
    if (kind == BufferKind::device) {
      Places unknown;
      for (const Access& access : state.accesses) {
        const int line = at(access.place).line;
        if (line >= 0 && line != state.home &&
            std::ranges::find(state.recorded, line) == state.recorded.end())
          unknown.set(static_cast<size_t>(access.place));
      }
      if (unknown.any() && is_reachable(state.home))
        order(state.home_slot, unknown);
      else
        host_wait(unknown);
      open_gates_before_free(state);
      if (!is_reachable(state.home)) open_gates_if_calls_may_wait();
    } else if (kind != pinned) {
      host_wait(state.all_accesses());
      if (kind != pageable) open_gates(closed_);  // the runtime may wait for the device
    } else {
      open_gates_if_calls_may_wait();
    }
    emit(Call::drop_buffer).buffer = number;
    state.accesses.clear();
    state.recorded.clear();
  }

  /// A stream of the device, the wanted one if that is.
  std::optional<int> stream_on(int device, int wanted) const {
    if (slot(wanted).device == device) return wanted;
    for (int stream : range(stream_count()))
      if (slot(stream).device == device) return stream;
    return std::nullopt;
  }

  // Operations.
  void renew_buffer(const Operation& o) {
    const BufferSlot& kind = buffer_slot(o.buffer);
    const std::optional<int> home = stream_on(kind.device, o.stream);
    if (kind.kind == BufferKind::device && !home) return;
    drop(o.buffer);
    BufferState& state = buffer(o.buffer);
    state.alive = true;
    Step step = make(Call::make_buffer, home.value_or(0));
    step.buffer = o.buffer;
    step.bytes = kind.size;
    step.device = kind.device;
    if (kind.kind != BufferKind::device) {
      if (kind.kind != pageable) open_gates_if_calls_may_wait();
      emit(step);
      step.call = Call::write_host;
      step.value = o.value;
      emit(step);
      write_pattern(state.bytes.data(), kind.size, o.value);
      return;
    }
    touch_line(line_of(*home));
    state.home = line_of(*home);
    state.home_slot = lines_[state.home].slot;
    lines_[state.home].frees_may_follow = true;
    emit(step);
    step.call = Call::fill;
    step.value = o.value;
    emit(step);
    std::ranges::fill(state.bytes, o.byte());
    commit(*home);
    note(o.buffer, 0, kind.size, true);
  }

  /// After the calls of an operation that writes were emitted.
  void commit_write(const Operation& o, size_t end) {
    commit(o.stream);
    note(o.buffer, o.at, end, true);
    note_use_on(o.stream, o.buffer);
  }

  /// The same of a copy.
  void commit_copy(const Operation& o, size_t end, size_t source_end) {
    commit(o.stream);
    note(o.buffer, o.at, end, true);
    note(o.source, o.source_at, source_end, false);
    note_use_on(o.stream, o.buffer);
    note_use_on(o.stream, o.source);
  }

  void copy(const Operation& o) {
    if (!take_pair(o, o.end(), o.source_end())) return;
    if (o.bytes == 0) {
      touch_line(line_of(o.stream));  // another thread must not replace the stream meanwhile
      return emit_access(make(Call::copy, o.stream), o);
    }
    const BufferState& from = buffer(o.source);
    order(o.stream, conflicts(o, true) | from.conflicts(o.source_at, o.source_end(), false));
    Step step = make(Call::copy, o.stream);
    step.form = random_.below(5);
    if (step.form == 4) {  // Pageable::block may hold this thread
      open_gates_before_wait(lines_.held(line_of(o.stream)));
    }
    step.source_is_free =
        is_host(o.source) && (from.conflicts(o.source_at, o.source_end(), true) & ~known()).none();
    std::memcpy(bytes_at(o.buffer, o.at), bytes_at(o.source, o.source_at), o.bytes);
    if (is_host(o.buffer)) step.digest = digest(bytes_at(o.buffer, o.at), o.bytes);
    emit_access(step, o);
    commit_copy(o, o.end(), o.source_end());
  }

  void copy_2d(const Operation& o) {
    const size_t to_end = (o.height - 1) * o.pitch + o.bytes,
                 from_end = (o.height - 1) * o.source_pitch + o.bytes;
    if (!take_pair(o, to_end, from_end)) return;
    order(o.stream, buffer(o.buffer).conflicts(0, to_end, true) |
                        buffer(o.source).conflicts(0, from_end, false));
    emit_access(make(Call::copy_2d, o.stream), o);
    current_.steps.back().form = o.height % 2 == 0 ? random_.below(2) : 0;
    for (size_t row : range(o.height))
      std::memcpy(bytes_at(o.buffer, row * o.pitch), bytes_at(o.source, row * o.source_pitch),
                  o.bytes);
    commit_copy(o, to_end, from_end);
  }

  void row(const Operation& o) {
    BufferState& to = buffer(o.buffer);
    BufferState& from = buffer(o.source);
    const size_t size = buffer_slot(o.buffer).size;
    if (!to.alive || !from.alive || o.buffer == o.source || o.height == 0) return;
    touch_pair(o);
    const std::vector<RowCopy> copies = row_copies(o.choice, o.height, size);
    const auto [has_there, has_back] = directions_of(copies);
    begin_many(o, to.conflicts(0, size, has_there) | from.conflicts(0, size, has_back));
    for (const RowCopy& each : copies) {
      unsigned char* const at = to.bytes.data() + each.at;
      unsigned char* const source_at = from.bytes.data() + each.source_at;
      each.back ? std::memcpy(source_at, at, each.bytes) : std::memcpy(at, source_at, each.bytes);
    }
    commit_many(make(Call::row, o.stream), o, has_there, has_back);
  }

  void list(const Operation& o) {
    BufferState& to = buffer(o.buffer);
    const size_t size = buffer_slot(o.buffer).size;
    if (!to.alive || !buffer(o.source).alive || o.buffer == o.source || o.height == 0) return;
    Step step = make(Call::list, o.stream);
    if (o.third != o.buffer && o.third != o.source && buffer(o.third).alive) step.third = o.third;
    touch_pair(o);
    if (step.third >= 0) touch_buffer(step.third);
    const std::vector<ListedCopy> copies = listed_copies(o.choice, o.height, size);
    const auto [has_there, has_back] = directions_of(copies);
    Places required =
        to.conflicts(0, size, has_there) | buffer(o.source).conflicts(0, size, has_back);
    if (step.third >= 0) required |= buffer(step.third).conflicts(0, size, has_back);
    begin_many(o, required);
    for (const ListedCopy& each : copies) {
      unsigned char* const at = to.bytes.data() + each.at;
      unsigned char* const other =
          buffer(each.of_third && step.third >= 0 ? step.third : o.source).bytes.data() +
          each.other_at;
      each.back ? std::memcpy(other, at, each.bytes) : std::memcpy(at, other, each.bytes);
    }
    commit_many(step, o, has_there, has_back);
  }

  /// A channel takes a bounded number of calls: a full one holds this thread, and a closed gate
  /// would hold it for ever.
  void begin_many(const Operation& o, const Places& required) {
    constexpr size_t many = 40;
    if (o.height > many || o.bytes > 256 * 1024) open_gates(closed_);
    order(o.stream, required);
  }

  void commit_many(Step step, const Operation& o, bool writes_buffer, bool writes_others) {
    step.buffer = o.buffer;
    step.source = o.source;
    step.bytes = buffer_slot(o.buffer).size;
    step.height = o.height;
    step.value = o.choice;
    step.mark = place_;
    step.form = random_.below(8);
    emit(step);
    commit(o.stream);
    note(o.buffer, 0, step.bytes, writes_buffer);
    note_use_on(o.stream, o.buffer);
    for (const int other : {step.source, step.third}) {
      if (other < 0) continue;
      note(other, 0, step.bytes, writes_others);
      note_use_on(o.stream, other);
    }
  }

  void fill(const Operation& o) {
    const size_t end = o.at + (o.height - 1) * o.pitch + o.bytes;
    if (!can_use(o, o.buffer, end) || !is_near(o)) return;
    touch_buffer(o.buffer);
    constexpr size_t widths[] = {0, 1, 2, 4, 8, 12};
    const bool flat = o.verb == Verb::fill;
    const size_t width = flat ? widths[random_.below(std::size(widths))] : 0;
    const bool is_empty = o.bytes < std::max<size_t>(width, 1);  // then nothing is enqueued
    touch_line(line_of(o.stream));
    if (!is_empty) order(o.stream, buffer(o.buffer).conflicts(o.at, end, true));
    emit_access(make(flat ? Call::fill : Call::fill_2d, o.stream), o);
    current_.steps.back().form = static_cast<unsigned>(width);
    if (is_empty) return;
    unsigned char* const bytes = bytes_at(o.buffer, o.at);
    unsigned char element[16] = {o.byte()};
    if (width > 0) write_pattern(element, width, o.value);
    const size_t step = std::max<size_t>(width, 1);
    for (size_t row : range(o.height))
      for (size_t i = 0; i + step <= o.bytes; i += step)
        std::memcpy(bytes + row * o.pitch + i, element, step);
    commit_write(o, end);
  }

  void scratch(const Operation& o) {
    if (!can_use(o) || o.bytes == 0) return;
    const bool on_device = o.verb == Verb::scratch_device;
    touch_buffer(o.buffer);
    order(o.stream, conflicts(o, true));
    unsigned char* const bytes = bytes_at(o.buffer, o.at);
    Step step = make(on_device ? Call::scratch_device : Call::scratch_pinned, o.stream);
    if (on_device) {
      step.other_stream = o.other_stream;
      step.form = random_.below(2);
      const int home = line_of(o.other_stream);
      touch_line(home);
      if (home != line_of(o.stream)) wait_for(line_of(o.stream), home);
      // Behind a gate the block is not freed. Some of them may be all the memory that the device
      // has, and the next allocation would wait until this thread opens the gate.
      if (o.bytes > 256 * 1024) open_gates(closed_);
      std::fill_n(bytes, o.bytes, o.byte());
    } else {
      open_gates_if_calls_may_wait();
      write_pattern(bytes, o.bytes, o.value);
    }
    emit_access(step, o);
    commit_write(o, o.end());
  }

  void function(const Operation& o) {
    const int line = line_of(o.stream);
    order(o.stream, {});
    Step step = make(Call::plain_function, o.stream);
    step.mark = place_;
    if (o.verb == Verb::gate && is_single()) {
      step.call = Call::gate;
      nth(closed_, place_) = true;
      here().opens_at = static_cast<size_t>(place_) + o.bytes;
    } else if (o.verb == Verb::busy_function) {
      step.call = Call::busy_function;
    } else if (o.verb == Verb::throw_function && slot(o.stream).kind != leased &&
               lines_[line].thread <= 0 && is_single()) {
      step.call = Call::throw_function;
      if (lines_[line].exception < 0) lines_[line].exception = place_;
    } else if (o.verb == Verb::wait_function && !machine_.one_host_function) {
      for (int other : range(place_)) {
        if (nth(program_.operations, other).id != o.partner || !at(other).is_function) continue;
        join(other);
        step.call = Call::wait_function;
        step.buffer = other;
        const Places covered = machine_.functions_order ? at(other).work : Places{};
        wait_for(line, {covered, at(other).held});
      }
    }
    emit(step);
    commit(o.stream);
    here().is_function = true;
  }

  /// The outcome is known only if no host function of the stream has thrown.
  void completion(const Operation& o) {
    const int line = line_of(o.stream);
    if (lines_[line].exception >= 0) return;
    touch_line(line);
    Step step = make(Call::completion, o.stream);
    step.mark = place_;
    const Places before = lines_.before(line);
    for (int other : range(place_))
      if (nth(before, other) && at(other).is_function) step.function = other;
    emit(step);
  }

  void memory_function(const Operation& o) {
    if (!can_use(o) || !is_host(o.buffer)) return;
    const bool writes = o.verb == Verb::write_function;
    touch_buffer(o.buffer);
    order(o.stream, conflicts(o, writes));
    unsigned char* const bytes = bytes_at(o.buffer, o.at);
    Step step = make(writes ? Call::write_function : Call::read_function, o.stream);
    if (writes)
      write_pattern(bytes, o.bytes, o.value);
    else
      step.digest = digest(bytes, o.bytes);
    emit_access(step, o);
    if (buffer_slot(o.buffer).kind == pinned) {
      step = make(Call::record_stream, o.stream);
      step.buffer = o.buffer;
      step.form = random_.below(2);
      emit(step);
    }
    commit(o.stream);
    here().is_function = true;
    note(o.buffer, o.at, o.end(), writes);
  }

  void check(const Operation& o) {
    if (!can_use(o)) return;
    touch_buffer(o.buffer);
    const Places required = conflicts(o, false);
    const bool directly = is_host(o.buffer);
    Step step = make(directly ? Call::compare : Call::compare_copied, o.stream);
    step.digest = digest(bytes_at(o.buffer, o.at), o.bytes);
    if (directly) {
      host_wait(required);
      return emit_access(step, o);
    }
    order(o.stream, required);
    // a copy of no bytes enqueues nothing, which the default stream would order
    if (o.bytes > 0) commit(o.stream);
    const int line = line_of(o.stream);
    const Places covered = lines_.covered_by_synchronize(line);
    open_gates_before_wait(lines_.held(line));
    step.exception = std::exchange(lines_[line].exception, -1);
    emit_access(step, o);
    known() |= covered;
    note(o.buffer, o.at, o.end(), false);
    note_use_on(o.stream, o.buffer);
  }

  void host_write(const Operation& o) {
    if (!can_use(o) || !is_host(o.buffer)) return;
    touch_buffer(o.buffer);
    host_wait(conflicts(o, true));
    emit_access(make(Call::write_host), o);
    write_pattern(bytes_at(o.buffer, o.at), o.bytes, o.value);
  }

  void event(const Operation& o) {
    EventState& state = nth(events_, o.event);
    touch(state.last_operation);
    Step step = make(Call::record_event, o.stream);
    step.event = o.event;
    const int line = line_of(o.stream);
    switch (o.verb) {
      case Verb::record_event:
        touch_line(line);
        return record(o.event, o.stream);
      case Verb::wait_event:
        touch_line(line);
        step.call = Call::wait_event;
        emit(step);
        wait_for(line, state);
        return;
      case Verb::synchronize_event:
        step.call = Call::synchronize_event;
        step.form = random_.below(3);
        return synchronize_covered(state.covers, state.held, step);
      case Verb::move_event:
        step.call = Call::move_event;
        emit(step);
        return;
      default:
        reset_event(o.event);
    }
  }

  void elapsed(const Operation& o) {
    if (!can_use(o) || o.bytes == 0 || !is_near(o)) return;
    touch_buffer(o.buffer);
    order(o.stream, conflicts(o, true));
    commit(o.stream);
    const Places covered = here().work;
    open_gates_before_wait(lines_.held(line_of(o.stream)));
    emit_access(make(Call::elapsed, o.stream), o);
    std::fill_n(bytes_at(o.buffer, o.at), o.bytes, o.byte());
    known() |= covered;
    note(o.buffer, o.at, o.end(), true);
    note_use_on(o.stream, o.buffer);
  }

  void renew_stream(const Operation& o) {
    const StreamKind kind = slot(o.stream).kind;
    if (kind == device_default || kind == thread_default) return;
    const int old = line_of(o.stream);
    touch_line(old);
    emit(Call::make_stream, o.stream);
    if (kind == borrowed) return;
    lines_[old].gone = true;
    nth(lines_of_slots_, o.stream) = new_line(o.stream, -1);
    lines_[line_of(o.stream)].last_operation = place_;
    // A lease brings the work of the former holder with it, and the frees of buffers that this one
    // has used.
    if (kind == leased) {
      lines_[line_of(o.stream)].held = lines_[old].held;
      lines_[line_of(o.stream)].frees_may_follow = lines_[old].frees_may_follow;
    }
    for (int other : range(stream_count())) {
      if (slot(other).kind != borrowed || slot(other).owner != o.stream) continue;
      emit(Call::make_stream, other);
      nth(lines_of_slots_, other) = line_of(o.stream);
    }
  }

  void overlap(const Operation& o) {
    const auto fits = [&](int number) {
      const BufferSlot& kind = buffer_slot(number);
      return buffer(number).alive &&
             (is_host(number) || (kind.kind == BufferKind::device && kind.device == 0));
    };
    if (!fits(o.buffer) || !fits(o.source) || o.buffer == o.source) return;
    touch_pair(o);
    const size_t size = buffer_slot(o.buffer).size;
    host_wait(buffer(o.buffer).conflicts(0, size, true) |
              buffer(o.source).conflicts(0, size, false));
    open_gates(closed_);
    emit_access(make(Call::overlap), o);
    current_.steps.back().form = random_.below(4);
    buffer(o.buffer).bytes = buffer(o.source).bytes;
  }

  /// Copies of pageable memory cannot be captured everywhere. The library does not see that a graph
  /// uses a pinned buffer: it may be dropped only when the graph is complete.
  void graph(const Operation& o) {
    const BufferKind to = buffer_slot(o.buffer).kind, from = buffer_slot(o.source).kind;
    if (to == pageable || from == pageable || o.bytes == 0 ||
        !take_pair(o, o.end(), o.source_end()))
      return;
    open_gates_if_calls_may_wait();
    Step step = make(Call::graph, o.stream);
    step.form = random_.below(24);
    step.parts = o.parts;
    step.event = first_external + o.event % 2;
    const int awaited = 2 * first_external + 1 - step.event, device = slot(o.stream).device,
              line = line_of(o.stream);
    EventState& recorded_state = nth(events_, step.event);
    EventState& awaited_state = nth(events_, awaited);
    const Places required =
        conflicts(o, true) | buffer(o.source).conflicts(o.source_at, o.source_end(), false);
    touch(recorded_state.last_operation);
    touch(awaited_state.last_operation);
    if ((o.parts & waits_for_event) != 0) {
      order(o.stream, required & ~awaited_state.covers);
      // it was recorded again
      if ((required & ~(lines_.before(line) | known() | awaited_state.covers)).any())
        order(o.stream, required);
      wait_for(line, awaited_state);
      bind_event(awaited, device);
    } else {
      order(o.stream, required);
    }
    if ((o.parts & records_event) != 0) {
      if (recorded_state.device >= 0 && recorded_state.device != device) reset_event(step.event);
      bind_event(step.event, device);
    }
    std::memcpy(bytes_at(o.buffer, o.at), bytes_at(o.source, o.source_at), o.bytes);
    emit_access(step, o);
    commit_copy(o, o.end(), o.source_end());
    if ((o.parts & records_event) != 0) {
      recorded_state.covers = here().work;
      recorded_state.held = lines_.held(line);
    }
    if (to == pinned || from == pinned) synchronize(o.stream);
  }

  void starve(const Operation& o) {
    if (!machine_.allocation_faults) return;
    if (random_.chance(50)) {
      order(o.stream, {});
      Step step = make(Call::starve, o.stream);
      step.mark = place_;
      step.value = random_.below(6);
      emit(step);
      commit(o.stream);
      here().is_function = true;
      return;
    }
    copy(o);
    if (current_.steps.empty()) return;
    for (Step& step : current_.steps)
      if (step.call == Call::copy) {
        step.call = Call::starve;
        step.source_is_free = false;
        step.value = random_.below(8);
      }
  }

  void query(const Operation& o) {
    const int line = line_of(o.stream);
    touch_line(line);
    Step step = make(Call::query, o.stream);
    if ((lines_[line].work & closed_).any()) step.answer = Answer::no;
    emit(step);
  }

  Step make(Call call, int stream = -1) const {
    Step step;
    step.call = call;
    step.stream = stream;
    return step;
  }

  Step& emit(Step step) {
    current_.steps.push_back(step);
    return current_.steps.back();
  }
  Step& emit(Call call, int stream = -1) { return emit(make(call, stream)); }
  /// Sets `source` only for operations that read it, because the interpreter restores the
  /// overwritten bytes of each buffer that a step names.
  void emit_access(Step step, const Operation& o) {
    step.buffer = o.buffer;
    if (step.call == Call::copy || step.call == Call::copy_2d || step.call == Call::overlap ||
        step.call == Call::graph)
      step.source = o.source;
    step.at = o.at;
    step.source_at = o.source_at;
    step.bytes = o.bytes;
    step.height = o.height;
    step.pitch = o.pitch;
    step.source_pitch = o.source_pitch;
    step.value = o.value;
    step.mark = place_;
    emit(step);
  }

  bool is_single() const { return program_.threads == 1; }

  const Program& program_;
  const Machine& machine_;
  Calls calls_;
  Lowered current_;
  Random random_{0};

  Lines lines_;
  std::vector<int> lines_of_slots_;
  std::map<std::pair<int, int>, int> thread_lines_;  // by thread and device
  std::array<int, 64> legacy_last_ = [] {
    std::array<int, 64> none{};
    none.fill(-1);
    return none;
  }();
  std::vector<BufferState> buffers_;
  std::array<EventState, event_slots> events_;
  // by the thread that runs the operation: threads of the program, then visits
  std::vector<Places> known_;
  int runner_ = 0;
  int visit_ = 0;
  int visit_parent_ = 0;
  Places closed_;  // gates
  unsigned values_ = 0;

  int place_ = 0;
  std::array<Place, max_places> places_;
};

}  // namespace

Calls lower(const Program& program, const Machine& machine) {
  return Lowering{program, machine}.lower();
}

}  // namespace random_programs
