// SPDX-License-Identifier: Apache-2.0
#include "interpret.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "../../support/eventually.hpp"
#include "bytes.hpp"
#include "objects.hpp"
#include "rows.hpp"

namespace random_programs {
namespace {

using namespace runnel;
using namespace std::chrono_literals;

/// What a host function throws: the operation that it belongs to.
struct Thrown {
  int place;
};

struct Wide {
  std::uint32_t words[3];
};

// Host functions call these two, also when the interpreter is gone.

void compare(const unsigned char* bytes, const Step& step, const char* what) {
  if (digest(bytes, step.bytes) == step.digest) return;
  fail(what, " found wrong bytes in buffer ", step.buffer, ", ", step.bytes, " bytes at ", step.at,
       "; the first byte is ", int{bytes[0]});
}

template <class F>
void must_throw(const Step& step, errc code, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.code() != code)
      fail("refused call ", step.form, " throws another error: ", error.what());
    return;
  }
  fail("refused call ", step.form, " throws nothing");
}

bool is_function_call(Call call) {
  using enum Call;
  constexpr Call all[] = {read_function, write_function, throw_function, wait_function,
                          busy_function, gate,           plain_function, completion};
  return std::ranges::find(all, call) != std::end(all);
}

/// A graph of a program: what its capture submits, and what becomes of it then.
struct GraphOf {
  const Step& step;
  EventObjects& events;
  unsigned char* target;
  const unsigned char* source;
  Stream main, side;
  std::shared_ptr<std::atomic_int> runs = std::make_shared<std::atomic_int>(0);
  bool allocates = false;
  Graph graph{};
  int launched = 0;

  bool has(GraphPart part) const { return (step.parts & part) != 0; }
  size_t half() const { return step.bytes / 2; }
  /// Two halves are copied on two streams, one of them through memory of the graph.
  void submit() {
    if (has(waits_for_event))
      events.with(2 * first_external + 1 - step.event,
                  [&](auto& event) { main.wait_event(event); });
    main.launch_host_func([counted = runs] { ++*counted; });
    side.wait_stream(main);
    copy_bytes(main, target, source, half());
    if (!allocates) {
      copy_bytes(side, target + half(), source + half(), step.bytes - half());
    } else {
      DeviceBuffer<unsigned char> between(step.bytes - half(), side);
      copy_bytes(side, between.data(), source + half(), step.bytes - half());
      copy_bytes(side, target + half(), between.data(), step.bytes - half());
    }
    main.wait_stream(side);
    if (has(records_event)) events.with(step.event, [&](auto& event) { event.record(main); });
  }
  void make() {
    allocates = step.form % 2 != 0;
    try {
      graph = capture(main, [&] { submit(); });
    } catch (const Error& error) {  // older runtimes cannot capture allocations
      if (error.code() != errc::capture || !std::exchange(allocates, false)) throw;
      graph = capture(main, [&] { submit(); });
    }
    if (step.form % 4 >= 2) static_cast<void>(graph.update(main, [&] { submit(); }));
  }
  void launch(StreamRef on) {
    graph.launch(on);
    ++launched;
  }
  /// A graph that allocates cannot be a part of another one.
  void nest() {
    if (!has(is_nested)) return;
    try {
      graph = capture(main, [&] { graph.launch(main); });
      if (allocates) fail("a graph that allocates memory is a part of another one");
    } catch (const Error& error) {
      if (error.code() != errc::not_supported || !allocates) throw;
    }
  }
};

class Interpreter {
 public:
  Interpreter(const Program& program, const Calls& calls)
      : program_{program},
        calls_{calls},
        streams_(program.streams.size()),
        buffers_(program.buffers.size()) {}

  void run() {
    const LiveObjects before = live_objects();
    events_.emplace();
    values_.emplace(max_values);
    std::ranges::fill(*values_, 0);
    for (size_t i : range(streams_.size())) make_stream(static_cast<int>(i));
    std::vector<Operations> by_thread(static_cast<size_t>(program_.threads));
    for (const Lowered& each : calls_.operations) nth(by_thread, each.thread).push_back(&each);
    std::vector<std::thread> threads;
    for (size_t i = 1; i < by_thread.size(); ++i)
      threads.emplace_back([this, &by_thread, i] { run_thread(by_thread[i]); });
    run_thread(by_thread.front());
    for (std::thread& thread : threads) thread.join();
    quiesce();
    LiveObjects now{};
    const auto as_before = [&] {
      now = live_objects();
      now.pooled_events = before.pooled_events;
      return now == before;
    };
    if (!test_support::eventually(20s, as_before))
      fail("objects are left: ", now.streams - before.streams, " streams, ",
           now.events - before.events, " events, ", now.pinned_blocks - before.pinned_blocks,
           " pinned blocks, ", now.device_blocks - before.device_blocks, " device blocks, ",
           now.host_functions - before.host_functions, " host functions");
    check_runs();
  }

 private:
  using Operations = std::vector<const Lowered*>;

  /// Neighbours with the same visit run on a thread of their own.
  void run_thread(const Operations& operations) {
    for (size_t first = 0; first < operations.size();) {
      size_t last = first + 1;
      while (last < operations.size() && operations[last]->visit == operations[first]->visit)
        ++last;
      const auto run = [&] { run_operations(operations.data() + first, operations.data() + last); };
      if (operations[first]->visit == 0)
        run();
      else
        std::thread{run}.join();
      first = last;
    }
  }

  void run_operations(const Lowered* const* first, const Lowered* const* last) {
    for (; first != last; ++first) {
      const Lowered& operation = **first;
      for (const int other : operation.after) nth(submitted_, other).wait(false);
      try {
        for (const Step& step : operation.steps) execute(step);
      } catch (const std::exception& error) {
        fail("operation ", operation.place, " threw: ", error.what());
      } catch (const Thrown& thrown) {
        fail("operation ", operation.place, " delivered the exception of operation ", thrown.place);
      }
      nth(submitted_, operation.place) = true;
      nth(submitted_, operation.place).notify_all();
    }
  }

  void execute(const Step& step) {
    if (step.buffer >= 0 && step.call != Call::wait_function) restore(step.buffer);
    if (step.source >= 0) restore(step.source);
    if (step.third >= 0) restore(step.third);
    const auto mark = [&]() -> std::optional<Event>& { return nth(marks_, step.mark); };
    switch (step.call) {
      case Call::wait_stream:
        return stream(step).wait_stream(stream(step.other_stream));
      case Call::wait_value:
        return wait_for_value(step);
      case Call::wait_recorded:
        return stream(step).wait_event(stream(step.other_stream).record_event());
      case Call::record_event:
        events_->with(step.event, [&](auto& event) { stream(step).record_event(event); });
        return;
      case Call::wait_event:
        events_->with(step.event, [&](auto& event) { stream(step).wait_event(event); });
        return;
      case Call::leave_mark:
        mark().emplace(stream(step));
        return;
      case Call::wait_mark:
        return stream(step).wait_event(*mark());
      case Call::synchronize:
        return wait_for(stream(step), step);
      case Call::synchronize_event:
        events_->with(step.event, [&](auto& event) { wait_for(event, step); });
        return;
      case Call::synchronize_mark:
        return wait_for(*mark(), step);
      case Call::synchronize_device:
        return Device{step.device}.synchronize();
      case Call::open_gate:
        nth(shared_->opened, step.mark) = true;
        nth(shared_->opened, step.mark).notify_all();
        return;
      case Call::query:
        return query(step);
      case Call::show_handle:
        return static_cast<void>(stream(step).native());
      case Call::make_stream:
        return make_stream(step.stream);
      case Call::make_buffer:
        return make_buffer(step);
      case Call::drop_buffer:
        return buffer(step.buffer).drop();
      case Call::move_event:
        events_->with(step.event, [](auto& event) {
          auto moved = std::move(event);
          event = std::move(moved);
        });
        return;
      case Call::drop_event:
        events_->with(step.event, [&](auto& event) {
          event = std::remove_reference_t<decltype(event)>{
              EventOptions{.external = step.event >= first_external}};
        });
        return;
      case Call::record_stream:
        if (step.form == 1)
          record_stream(stream(step), buffer(step.buffer).data());
        else if (kind(step.buffer) == BufferKind::device)
          buffer(step.buffer).device->record_stream(stream(step));
        else
          buffer(step.buffer).pinned->record_stream(stream(step));
        return;
      case Call::resize_buffer:
        for (const size_t size : {step.bytes + 4096, step.bytes})
          buffer(step.buffer).device->resize(size);
        return;
      case Call::set_stream:
        return buffer(step.buffer).device->set_stream(stream(step));
      case Call::trim:
        return step.form == 0 ? PinnedPool::trim() : Staging::trim();
      case Call::fork_child:
        fork_child();
        return;
      case Call::copy:
        return copy(step);
      case Call::copy_2d:
        return copy_rows(step);
      case Call::row:
        return row(step);
      case Call::list:
        return list(step);
      case Call::fill:
        return fill(step);
      case Call::fill_2d:
        return runnel::fill_2d(stream(step), place_of(step), step.pitch, step.byte(), step.bytes,
                               step.height);
      case Call::scratch_pinned:
      case Call::scratch_device:
        return scratch(step);
      case Call::read_function:
      case Call::write_function:
      case Call::throw_function:
      case Call::wait_function:
      case Call::busy_function:
      case Call::gate:
      case Call::plain_function:
      case Call::completion:
        return launch(step);
      case Call::write_host:
        RaceChecker::host_writes(place_of(step), step.bytes);
        write_pattern(place_of(step), step.bytes, step.value);
        return;
      case Call::compare:
        RaceChecker::host_reads(place_of(step), step.bytes);
        compare(place_of(step), step, "the thread");
        return;
      case Call::compare_copied:
        return compare_copied(step);
      case Call::elapsed:
        return elapsed(step);
      case Call::overlap:
        return overlap_buffers(step);
      case Call::graph:
        return graph(step);
      case Call::refuse:
        return refuse(step);
      case Call::starve:
        return starve(step);
    }
  }

  /// Drops everything, with the work that is still in flight.
  void quiesce() {
    events_.reset();
    values_.reset();
    for (auto& mark : marks_) mark.reset();
    for (size_t i = streams_.size(); i-- > 0;) streams_[i] = {};
    pools_.clear();
  }

  void check_runs() const {
    for (const Lowered& each : calls_.operations)
      for (const Step& step : each.steps) {
        const bool is_function =
            is_function_call(step.call) || (step.call == Call::starve && step.buffer < 0);
        const std::atomic_int& ran = nth(shared_->ran, each.place);
        // Nothing waits for the functions of on_complete().
        if (is_function && !test_support::eventually(step.call == Call::completion ? 20s : 0s,
                                                     [&] { return ran == 1; }))
          fail("the host function of operation ", each.place, " ran ", ran.load(), " times");
      }
    if (std::ranges::any_of(untouched_, [](unsigned char byte) { return byte != 0; }))
      fail("a refused call has written");
  }

  StreamRef stream(int number) {
    StreamObject& object = nth(streams_, number);
    const StreamKind what = nth(program_.streams, number).kind;
    if (what == device_default) return device_of(number).default_stream();
    if (what == thread_default) return StreamRef::per_thread_default(device_of(number));
    if (what == leased) return *object.lease;
    return *object.stream;
  }

  StreamRef stream(const Step& step) { return stream(step.stream); }
  Device device_of(int number) const { return Device{nth(program_.streams, number).device}; }
  BufferObject& buffer(int number) { return nth(buffers_, number); }
  unsigned char* place_of(const Step& step) { return buffer(step.buffer).data() + step.at; }
  BufferKind kind(int number) const { return nth(program_.buffers, number).kind; }
  void restore(int number) {
    BufferObject& object = buffer(number);
    if (object.spoiled.empty()) return;
    std::memcpy(object.data() + object.spoiled_at, object.spoiled.data(), object.spoiled.size());
    object.spoiled = {};
  }

  template <class Waitable>
  void wait_for(const Waitable& waitable, const Step& step) {
    try {
      if (step.form == 0) {
        waitable.synchronize();
      } else if (step.form == 1) {
        while (!waitable.synchronize_for(1s)) {
        }
      } else if (step.form == 3) {
        if constexpr (std::is_same_v<Waitable, StreamRef>) waitable.future().get();
      } else {
        for (test_support::Pauses pause; !waitable.query();) pause();
      }
    } catch (const Thrown& thrown) {
      if (thrown.place != step.exception)
        fail("the exception of operation ", thrown.place, " arrived out of turn");
      return;
    }
    if (step.exception >= 0) fail("the exception of operation ", step.exception, " did not arrive");
  }

  void wait_for_value(const Step& step) {
    const StreamRef waiting = stream(step), writing = stream(step.other_stream);
    if (!waiting.device().has_stream_memory_operations() ||
        !writing.device().has_stream_memory_operations())
      return waiting.wait_stream(writing);
    std::uint32_t* const number = values_->data() + step.value;
    writing.write_value(number, step.value + 1);
    waiting.wait_value(number, step.value + 1);
  }

  void make_stream(int number) {
    StreamObject& object = nth(streams_, number);
    const StreamSlot& slot = nth(program_.streams, number);
    const Device device{slot.device};
    object = {};
    if (slot.kind == own || slot.kind == blocking)
      object.stream.emplace(
          device, StreamOptions{.priority = number % 3 - 1, .blocking = slot.kind == blocking});
    if (slot.kind == borrowed)
      object.stream.emplace(
          Stream::from_native(stream(slot.owner).native(), device, Ownership::borrow));
    if (slot.kind == leased)
      object.lease.emplace(pools_.try_emplace(slot.device, device, StreamPoolOptions{.size = 1})
                               .first->second.acquire());
  }

  void make_buffer(const Step& step) {
    BufferObject& object = buffer(step.buffer);
    switch (kind(step.buffer)) {
      case pageable:
        object.host.resize(step.bytes);
        return;
      case registered:
        object.host.resize(step.bytes);
        object.registration.emplace(object.host);
        return;
      case pinned:
        object.pinned.emplace(step.bytes);
        return;
      case BufferKind::device:
        object.device.emplace(step.bytes, stream(step));
        return;
      case managed:
        object.managed.emplace(step.bytes, Device{step.device});
        return;
    }
  }

  /// The forms of a flat copy.
  CopyResult enqueue_copy(const Step& step) {
    const StreamRef on = stream(step);
    BufferObject& to = buffer(step.buffer);
    BufferObject& from = buffer(step.source);
    unsigned char* const target = to.data() + step.at;
    const unsigned char* const source = from.data() + step.source_at;
    if (step.form == 1) {
      const auto copy_from = [&](auto from_span) {
        if (to.device)
          return runnel::copy(on, to.device->span().subspan(step.at, step.bytes), from_span);
        return runnel::copy(on, std::span{target, step.bytes}, from_span);
      };
      if (from.device)
        return copy_from(std::as_const(*from.device).span().subspan(step.source_at, step.bytes));
      return copy_from(std::span{source, step.bytes});
    }
    if (step.form == 2) {
      const StreamGuard with{on};
      return copy_bytes(target, source, step.bytes);
    }
    if (step.form == 3) {
      const size_t half = step.bytes / 2;
      const CopyOperation operations[] = {{target, source, half},
                                          {target + half, source + half, step.bytes - half}};
      const CopyBatchResult result = copy_batch(on, operations);
      return result.inlined + result.nothing == 2 ? CopyResult::inlined : CopyResult::direct;
    }
    return copy_bytes(on, target, source, step.bytes,
                      {step.form == 4 ? Pageable::block : default_pageable()});
  }

  /// If the copy says that it was done at the call, the destination can be read and the source can
  /// be overwritten.
  void copy(const Step& step) {
    const CopyResult result = enqueue_copy(step);
    const bool is_done = result == CopyResult::inlined ||
                         (result == CopyResult::blocked && kind(step.source) == pageable);
    BufferObject& to = buffer(step.buffer);
    BufferObject& from = buffer(step.source);
    const bool to_host = !to.device && !to.managed;
    if ((result == CopyResult::inlined ||
         (result == CopyResult::blocked && kind(step.buffer) == pageable)) &&
        to_host)
      compare(to.data() + step.at, step, "a copy that is done at the call");
    if (!is_done || !step.source_is_free || step.bytes == 0) return;
    unsigned char* const source = from.data() + step.source_at;
    RaceChecker::host_writes(source, step.bytes);
    from.spoiled_at = step.source_at;
    from.spoiled.assign(source, source + step.bytes);
    std::memset(source, 0xEE, step.bytes);
  }

  /// Rows, or two slices of them.
  void copy_rows(const Step& step) {
    unsigned char* const to = buffer(step.buffer).data();
    const unsigned char* const from = buffer(step.source).data();
    const size_t rows = step.height / 2;
    if (step.form == 0)
      copy_2d(stream(step), to, step.pitch, from, step.source_pitch, step.bytes, step.height);
    else
      copy_3d(stream(step), to, {step.pitch, step.pitch * rows}, from,
              {step.source_pitch, step.source_pitch * rows}, {step.bytes, rows, 2});
  }

  /// In some rows, calls that enqueue no copy come between the copies.
  void row(const Step& step) {
    const StreamRef on = stream(step);
    unsigned char* const buffer_bytes = buffer(step.buffer).data();
    unsigned char* const source_bytes = buffer(step.source).data();
    size_t done = 0;
    for (const RowCopy& each : row_copies(step.value, step.height, step.bytes)) {
      if (const bool comes_between = ++done % 7 == 0; comes_between) {
        if (step.form == 1) static_cast<void>(on.query());
        if (step.form == 2) static_cast<void>(on.record_event());
        if (step.form == 3) on.launch_host_func([] {});
      }
      unsigned char* const at = buffer_bytes + each.at;
      unsigned char* const source_at = source_bytes + each.source_at;
      each.back ? copy_bytes(on, source_at, at, each.bytes)
                : copy_bytes(on, at, source_at, each.bytes);
    }
  }

  /// Half of the lists pass the kinds of memory to the library.
  void list(const Step& step) {
    const auto passed_kind = [&](int number) -> std::optional<MemoryKind> {
      if (step.form % 2 == 0) return std::nullopt;
      if (kind(number) == pageable) return MemoryKind::pageable;
      if (kind(number) == BufferKind::device) return MemoryKind::device;
      return std::nullopt;
    };
    std::vector<CopyOperation> operations;
    for (const ListedCopy& each : listed_copies(step.value, step.height, step.bytes)) {
      const int other_number = each.of_third && step.third >= 0 ? step.third : step.source;
      unsigned char* const at = buffer(step.buffer).data() + each.at;
      unsigned char* const other = buffer(other_number).data() + each.other_at;
      const auto kind_here = passed_kind(step.buffer), kind_there = passed_kind(other_number);
      operations.push_back(each.back ? CopyOperation{other, at, each.bytes, kind_there, kind_here}
                                     : CopyOperation{at, other, each.bytes, kind_here, kind_there});
    }
    const CopyBatchResult done = copy_batch(stream(step), operations);
    if (done.nothing + done.direct + done.staged + done.inlined + done.blocked != operations.size())
      fail("copy_batch() does not count all of its operations");
  }

  template <class T>
  void fill_elements(const Step& step) {
    T value;
    write_pattern(reinterpret_cast<unsigned char*>(&value), sizeof value, step.value);
    BufferObject& object = buffer(step.buffer);
    T* const target = reinterpret_cast<T*>(object.data() + step.at);
    const size_t count = step.bytes / sizeof(T);
    if (object.device)
      runnel::fill(stream(step), DeviceSpan<T>{target, count}, value);
    else
      runnel::fill(stream(step), std::span<T>{target, count}, value);
  }

  void fill(const Step& step) {
    switch (step.form) {
      case 1:
        return fill_elements<unsigned char>(step);
      case 2:
        return fill_elements<std::uint16_t>(step);
      case 4:
        return fill_elements<std::uint32_t>(step);
      case 8:
        return fill_elements<uint64_t>(step);
      case 12:
        return fill_elements<Wide>(step);
      default:
        fill_bytes(stream(step), place_of(step), step.byte(), step.bytes);
    }
  }

  /// The copy's source is dropped while the copy is under way.
  void scratch(const Step& step) {
    const StreamRef on = stream(step);
    unsigned char* const target = place_of(step);
    if (step.call == Call::scratch_pinned) {
      PinnedBuffer<unsigned char> source(step.bytes);
      write_pattern(source.data(), step.bytes, step.value);
      copy_bytes(on, target, source.data(), step.bytes);
      return;
    }
    const StreamRef home = stream(step.other_stream);
    DeviceBuffer<unsigned char> source(step.bytes, home);
    fill_bytes(home, source.data(), step.byte(), step.bytes);
    if (step.form == 1) source = DeviceBuffer<unsigned char>{source, home};
    on.wait_stream(home);
    copy_bytes(on, target, source.data(), step.bytes);
    source.record_stream(on);
  }

  void launch(const Step& step) {
    const StreamRef on = stream(step);
    const auto at = static_cast<size_t>(step.mark);
    const auto launch_with = [&](auto body) {
      on.launch_host_func([shared = shared_, at, body]() mutable {
        body();
        ++shared->ran[at];
        shared->ran[at].notify_all();
      });
    };
    unsigned char* const bytes =
        step.call == Call::read_function || step.call == Call::write_function ? place_of(step)
                                                                              : nullptr;
    switch (step.call) {
      case Call::read_function:
        return launch_with([bytes, step] { compare(bytes, step, "a host function"); });
      case Call::write_function:
        return launch_with([bytes, step] { write_pattern(bytes, step.bytes, step.value); });
      case Call::throw_function:
        return on.launch_host_func([shared = shared_, at] {
          ++shared->ran[at];
          shared->ran[at].notify_all();
          throw Thrown{static_cast<int>(at)};
        });
      case Call::wait_function:
        return launch_with([shared = shared_, other = static_cast<size_t>(step.buffer)] {
          shared->ran[other].wait(0);
        });
      case Call::busy_function:
        return launch_with([] {
          for (const auto end = std::chrono::steady_clock::now() + 400us;
               std::chrono::steady_clock::now() < end;) {
          }
        });
      case Call::gate:
        return launch_with([shared = shared_, at] { shared->opened[at].wait(false); });
      case Call::completion:
        return on.on_complete([shared = shared_, step, at](const Outcome& outcome) {
          if (!outcome.is_ok())
            fail("the completion of operation ", at,
                 " was told an error: ", outcome.code().message());
          if (step.function >= 0 && nth(shared->ran, step.function) == 0)
            fail("the completion of operation ", at, " came before a host function");
          ++shared->ran[at];
        });
      default:
        return launch_with([] {});
    }
  }

  void compare_copied(const Step& step) {
    std::vector<unsigned char> found(step.bytes);
    copy_bytes(stream(step), found.data(), place_of(step), step.bytes);
    Step wait = step;
    wait.form = 0;
    wait_for(stream(step), wait);
    compare(found.data(), step, "a copy");
  }

  void query(const Step& step) {
    const bool answer = stream(step).query();
    if (step.answer == Answer::no && answer)
      fail("query() is true although a gate on the stream is closed");
    if (step.answer == Answer::yes && !answer)
      fail("query() is false although the stream was synchronized");
  }

  void elapsed(const Step& step) {
    TimedEvent start{stream(step)}, stop;
    fill_bytes(stream(step), place_of(step), step.byte(), step.bytes);
    stop.record(stream(step));
    stop.synchronize();
    if (stop - start < 0ns) fail("a fill took a negative time");
  }

  void overlap_buffers(const Step& step) {
    BufferObject& to = buffer(step.buffer);
    BufferObject& from = buffer(step.source);
    OverlapOptions options;
    options.chunk = nth(program_.buffers, step.buffer).size / 3 + 1;
    options.in_flight = 1 + step.form % 3;
    options.strategy =
        step.form % 2 == 0 ? OverlapStrategy::automatic : OverlapStrategy::copy_compute_copy;
    const auto compute = [](StreamRef on, DeviceSpan<const unsigned char> in,
                            DeviceSpan<unsigned char> out) {
      copy_bytes(on, out.data(), in.data(), in.size());
    };
    const size_t size = nth(program_.buffers, step.buffer).size;
    const std::span<unsigned char> host_in{from.data(), size}, host_out{to.data(), size};
    if (from.device)
      to.device ? runnel::overlap(*from.device, *to.device, options, compute)
                : runnel::overlap(*from.device, host_out, options, compute);
    else
      to.device ? runnel::overlap(host_in, *to.device, options, compute)
                : runnel::overlap(host_in, host_out, options, compute);
  }

  /// The graph is dropped with its streams while it runs.
  void graph(const Step& step) {
    const StreamRef on = stream(step);
    GraphOf made{.step = step,
                 .events = *events_,
                 .target = place_of(step),
                 .source = buffer(step.source).data() + step.source_at,
                 .main = Stream{on.device()},
                 .side = Stream{on.device()}};
    made.make();
    made.nest();
    repeat(1 + step.form / 8, [&] { made.launch(on); });
    on.launch_host_func([runs = made.runs, launches = made.launched] {
      if (*runs != launches)
        fail("a function of a graph ran ", *runs, " times in ", launches, " launches");
    });
  }

  void refuse(const Step& step) {
    const StreamRef on = stream(step);
    unsigned char* const there = untouched_.data();
    unsigned char bytes[32] = {1};
    constexpr size_t huge = std::numeric_limits<size_t>::max();
    using enum errc;
    const std::pair<errc, std::function<void()>> calls[] = {
        {invalid_argument, [&] { copy_bytes(on, nullptr, bytes, 8); }},
        {invalid_argument, [&] { copy_bytes(on, there + 1, there, 10); }},
        {invalid_argument, [&] { copy_2d(on, there, 4, bytes, 8, 8, 2); }},
        {invalid_argument, [&] { copy_2d(on, there, huge / 2, bytes, huge / 2, 8, 4); }},
        {invalid_argument, [&] { fill_bytes(on, nullptr, 1, 8); }},
        {invalid_argument,
         [&] {
           const size_t count = huge / 4 + 3;  // in bytes: 8, after an overflow
           runnel::copy(on, std::span{reinterpret_cast<std::uint32_t*>(there), count},
                        std::span{reinterpret_cast<const std::uint32_t*>(bytes), count});
         }},
        {invalid_handle,
         [&] {
           Stream from{on.device()};
           const Stream to{std::move(from)};
           from.synchronize();
         }},
        {invalid_argument, [&] { on.launch_host_func(static_cast<void (*)()>(nullptr)); }},
        {invalid_handle,
         [&] {
           Event from{on};
           const Event to{std::move(from)};
           on.wait_event(from);
         }},
        {invalid_argument,
         [&] {
           const CopyOperation operations[] = {{there, bytes, 8}, {there + 17, there + 16, 8}};
           copy_batch(on, operations);
         }},
        {invalid_device, [] { static_cast<void>(Device{99}.name()); }},
    };
    if (step.form < std::size(calls))
      return must_throw(step, calls[step.form].first, calls[step.form].second);
    on.launch_host_func(
        [on, step] { must_throw(step, not_permitted, [&] { static_cast<void>(on.query()); }); });
  }

  /// The call throws and has done nothing, or it works. After a throw it is repeated.
  void starve(const Step& step) {
    const auto call = [&] {
      step.buffer < 0 ? launch(step) : static_cast<void>(enqueue_copy(step));
    };
    try {
      const AllocationFault fault{step.value};
      call();
    } catch (const std::bad_alloc&) {
      call();
    }
  }

  void fork_child() {
    std::optional<Event> event{Device{0}.default_stream()};
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(20);
      event.reset();
      _exit(child());
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
      fail("a forked child ended with status ", status);
  }

  /// In a forked child everything is refused, and nothing waits for a lock that a thread of the
  /// parent holds.
  static int child() {
    const auto is_refused = [](auto&& f) {
      try {
        f();
      } catch (const Error& error) {
        return error.code() == errc::forked;
      }
      return false;
    };
    if (!is_refused([] { static_cast<void>(PinnedPool::statistics()); })) return 2;
    if (!is_refused([] { static_cast<void>(current_stream()); })) return 3;
    if (!is_refused([] { const Stream stream; })) return 4;
    return 0;
  }

  const Program& program_;
  const Calls& calls_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::map<int, StreamPool> pools_;
  std::vector<StreamObject> streams_;
  std::vector<BufferObject> buffers_;
  std::optional<EventObjects> events_;
  std::optional<PinnedBuffer<std::uint32_t>> values_;
  std::vector<std::optional<Event>> marks_{max_places};
  std::array<std::atomic_bool, max_places> submitted_{};
  std::array<unsigned char, 64> untouched_{};  // destination of refused calls
};

}  // namespace

void interpret(const Program& program, const Calls& calls) { Interpreter{program, calls}.run(); }

}  // namespace random_programs
