// SPDX-License-Identifier: Apache-2.0
/// Random programs: most are small, so that thousands run in a second; a few move megabytes.
#include <algorithm>

#include "lower.hpp"
#include "program.hpp"

namespace random_programs {
namespace {

constexpr size_t kibibyte = 1024;

class Generator {
 public:
  Generator(uint64_t seed, const Limits& limits) : limits_{limits}, random_{seed} {
    program_.seed = seed;
  }

  Program make() {
    program_.threads =
        limits_.threads > 1 && random_.chance(15)
            ? 2 + static_cast<int>(random_.below(static_cast<unsigned>(limits_.threads - 1)))
            : 1;
    graph_ = random_.chance(4);
    choose_streams();
    choose_buffers();
    for (size_t i : range(program_.buffers.size())) {
      Operation& renew = add(Verb::renew_buffer);
      renew.buffer = static_cast<int>(i);
      renew.visit = 0;
    }
    const int wanted = std::max(
        1, limits_.operations / (graph_ ? 1 : 2) +
               static_cast<int>(random_.below(static_cast<unsigned>(limits_.operations + 1))));
    for (int i = 0; i < wanted && program_.operations.size() < max_operations; ++i)
      add(choose_verb());
    return std::move(program_);
  }

 private:
  int device() { return static_cast<int>(random_.below(static_cast<unsigned>(limits_.devices))); }
  int pick(size_t count) { return static_cast<int>(random_.below(count)); }

  void choose_streams() {
    program_.streams = {{device_default, 0, -1}, {thread_default, 0, -1}};
    const int more = graph_ ? 8 : 2 + pick(4);
    repeat(more, [&] {
      const unsigned what = random_.below(10);
      const int last = static_cast<int>(program_.streams.size()) - 1;
      const StreamKind before = program_.streams.back().kind;
      if (what == 0 && (before == own || before == blocking))
        program_.streams.push_back({borrowed, program_.streams.back().device, last});
      else
        program_.streams.push_back({what == 1 ? leased : what < 5 ? blocking : own, device(), -1});
    });
    if (limits_.devices > 1 && random_.chance(50))
      program_.streams.push_back({device_default, 1, -1});
    if (limits_.devices > 1 && random_.chance(30))
      program_.streams.push_back({thread_default, 1, -1});
  }

  /// The sizes on which the route of a copy depends lie on both sides of 32 KiB and of 256 KiB.
  size_t choose_size() {
    // Of six buffers, four in slots and the two of scratch_device, each fits into 16 MiB.
    if (limits_.staged) return 2048 * kibibyte + random_.below(640 * kibibyte);
    const unsigned what = random_.below(100);
    if (what < 72) return 64 + random_.below(2000);
    if (what < 82) return 31 * kibibyte + random_.below(2 * kibibyte);
    if (what < 89) return 100 * kibibyte + random_.below(160 * kibibyte);
    if (what < 97 || !limits_.large) return 257 * kibibyte + random_.below(400 * kibibyte);
    return 2048 * kibibyte + random_.below(3072 * kibibyte);
  }

  void choose_buffers() {
    constexpr BufferKind kinds[] = {BufferKind::device,
                                    BufferKind::device,
                                    pageable,
                                    pageable,
                                    pinned,
                                    registered,
                                    BufferKind::device,
                                    pinned,
                                    BufferKind::device,
                                    pageable,
                                    managed};
    const size_t count_of_kinds = limits_.staged ? 4 : std::size(kinds);
    const size_t size = choose_size();
    const int count = 3 + pick(limits_.staged ? 2 : 5);
    if (limits_.rows)
      program_.buffers = {{BufferKind::device, device(), size}, {pageable, 0, size}};
    repeat(count, [&] {
      program_.buffers.push_back({kinds[random_.below(count_of_kinds)], device(), size});
    });
  }

  Verb choose_verb() {
    struct Weight {
      Verb verb;
      unsigned weight;
    };
    static constexpr Weight weights[] = {{Verb::copy, 300},
                                         {Verb::copy_2d, 60},
                                         {Verb::fill, 60},
                                         {Verb::fill_2d, 25},
                                         {Verb::scratch_pinned, 40},
                                         {Verb::scratch_device, 40},
                                         {Verb::read_function, 50},
                                         {Verb::write_function, 50},
                                         {Verb::throw_function, 20},
                                         {Verb::wait_function, 50},
                                         {Verb::busy_function, 4},
                                         {Verb::gate, 60},
                                         {Verb::host_write, 40},
                                         {Verb::check, 20},
                                         {Verb::record_event, 25},
                                         {Verb::wait_event, 20},
                                         {Verb::wait_stream, 20},
                                         {Verb::synchronize, 25},
                                         {Verb::query, 20},
                                         {Verb::synchronize_event, 10},
                                         {Verb::move_event, 8},
                                         {Verb::drop_event, 8},
                                         {Verb::elapsed, 8},
                                         {Verb::renew_stream, 30},
                                         {Verb::renew_buffer, 50},
                                         {Verb::drop_buffer, 10},
                                         {Verb::trim, 5},
                                         {Verb::overlap, 2},
                                         {Verb::refuse, 40},
                                         {Verb::starve, 15},
                                         {Verb::fork_child, 1},
                                         {Verb::graph, 80},
                                         {Verb::row, 12},
                                         {Verb::list, 25},
                                         {Verb::show_handle, 15},
                                         {Verb::completion, 30},
                                         {Verb::resize_buffer, 15},
                                         {Verb::set_stream, 40}};
    if (graph_ && random_.chance(85)) {
      constexpr Verb functions[] = {Verb::wait_function, Verb::wait_function, Verb::wait_function,
                                    Verb::busy_function, Verb::gate};
      return functions[random_.below(std::size(functions))];
    }
    if (limits_.rows && random_.chance(40)) return random_.chance(50) ? Verb::row : Verb::list;
    // They fill the device's memory, which overlap() needs for its chunks. It has room for the
    // scratch buffers of one thread.
    const bool has_room = !limits_.staged || program_.threads == 1;
    if (limits_.staged && random_.chance(40))
      return random_.chance(50) || !has_room ? Verb::renew_buffer : Verb::scratch_device;
    unsigned total = 0;
    for (const Weight& each : weights) total += each.weight;
    unsigned at = random_.below(total);
    for (const Weight& each : weights) {
      // The memory that a graph allocates is free again some time after the graph was dropped,
      // which little memory cannot wait for.
      const bool needs_memory = each.verb == Verb::overlap || each.verb == Verb::graph ||
                                each.verb == Verb::resize_buffer ||
                                (each.verb == Verb::scratch_device && !has_room);
      if (at < each.weight) return limits_.staged && needs_memory ? Verb::copy : each.verb;
      at -= each.weight;
    }
    return Verb::copy;
  }

  /// Some operations run on a thread that ends soon: then most of them use that thread's default
  /// stream.
  void choose_thread(Operation& o) {
    o.thread = pick(static_cast<size_t>(program_.threads));
    const bool goes_on = visit_left_ > 0;
    if (!goes_on && !random_.chance(6)) return;
    if (!goes_on) {
      ++visits_;
      visit_left_ = 1 + pick(3);
      visit_thread_ = o.thread;
    }
    --visit_left_;
    o.visit = visits_;
    o.thread = visit_thread_;
    if (random_.chance(80)) o.stream = 1;
  }

  void choose_range(Operation& o) {
    const size_t size = program_.buffers.front().size;
    o.bytes = random_.chance(2) ? 0 : random_.chance(50) ? size : 1 + random_.below(size);
    o.at = random_.chance(50) ? 0 : random_.below(size - o.bytes + 1);
    o.source_at = random_.chance(50) ? 0 : random_.below(size - o.bytes + 1);
    if (o.verb == Verb::copy_2d || o.verb == Verb::fill_2d) choose_rows(o, size);
    if (o.verb == Verb::row)
      o.height = random_.chance(40) ? 20 + random_.below(281) : 2 + random_.below(39);
    if (o.verb == Verb::list)
      o.height = random_.chance(30) ? 100 + random_.below(1000) : 2 + random_.below(99);
    if (o.verb == Verb::gate) o.bytes = 1 + random_.below(graph_ ? 30 : 8);
  }
  /// Most rows and lists are between a device and pageable memory.
  void choose_sides(Operation& o) {
    o.third = pick(program_.buffers.size());
    if (random_.chance(20)) return;
    choose_kind(o.buffer, BufferKind::device);
    choose_kind(o.source, pageable);
  }
  void choose_kind(int& buffer, BufferKind wanted) {
    const auto count = static_cast<int>(program_.buffers.size());
    for (int i = 0, at = pick(program_.buffers.size()); i < count; ++i, at = (at + 1) % count)
      if (nth(program_.buffers, at).kind == wanted) buffer = at;
  }
  void choose_rows(Operation& o, size_t size) {
    o.height = 1 + random_.below(8);
    o.pitch = size / o.height;
    o.source_pitch = o.pitch;
    o.bytes = 1 + random_.below(o.pitch);
    if (o.pitch > o.bytes && random_.chance(50)) o.source_pitch -= random_.below(o.pitch - o.bytes);
    o.at = 0;
    o.source_at = 0;
  }

  Operation& add(Verb verb) {
    Operation o;
    o.verb = verb;
    o.id = ++last_id_;
    o.stream = pick(program_.streams.size());
    o.other_stream = pick(program_.streams.size());
    o.buffer = pick(program_.buffers.size());
    o.source = pick(program_.buffers.size());
    o.event = pick(event_slots);
    if (verb == Verb::row || verb == Verb::list) choose_sides(o);
    o.partner = 1 + pick(static_cast<size_t>(last_id_));
    o.value = random_.below(256);
    o.choice = static_cast<unsigned>(random_.next());
    if (verb == Verb::graph) o.parts = random_.below(all_parts + 1) & random_.below(all_parts + 1);
    choose_thread(o);
    choose_range(o);
    program_.operations.push_back(o);
    return program_.operations.back();
  }

  Limits limits_;
  Random random_;
  Program program_;
  bool graph_ = false;  // mostly host functions on many streams that wait for each other
  int last_id_ = 0;
  int visits_ = 0;
  int visit_left_ = 0;
  int visit_thread_ = 0;
};

}  // namespace

Program generate(uint64_t seed, const Limits& limits) { return Generator{seed, limits}.make(); }

}  // namespace random_programs
