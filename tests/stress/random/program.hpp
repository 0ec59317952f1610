// SPDX-License-Identifier: Apache-2.0
/// A random program as data. It says what is done and on which stream, but not how the operations
/// are ordered: lower() in lower.hpp adds the waits that the accesses to memory need. So an
/// operation can be removed, and what is left is still a program without a race.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../support/loops.hpp"

namespace random_programs {

using std::size_t, std::uint64_t;
using test_support::nth, test_support::range, test_support::repeat;

enum class StreamKind : unsigned char {
  own,             ///< independent of the default stream
  blocking,        ///< orders with the default stream
  device_default,  ///< the device's default stream
  thread_default,  ///< the default stream of the thread that executes the operation
  leased,          ///< from a StreamPool
  borrowed,        ///< another view of an own or blocking stream, by from_native()
};
using enum StreamKind;
struct StreamSlot {
  StreamKind kind = StreamKind::own;
  int device = 0;
  int owner = -1;  ///< borrowed: the slot of the stream that owns the handle
};

enum class BufferKind : unsigned char { pageable, pinned, registered, device, managed };
using BufferKind::pageable, BufferKind::pinned, BufferKind::registered, BufferKind::managed;
struct BufferSlot {
  BufferKind kind = BufferKind::pageable;
  int device = 0;
  size_t size = 0;
};

/// Even events are `Event`, odd ones are `TimedEvent`. Those from `first_external` on may be nodes
/// of graphs.
inline constexpr int event_slots = 4;
inline constexpr int first_external = 2;

/// What a graph has beside its copies.
enum GraphPart : unsigned {
  waits_for_event = 1,  ///< each launch waits for the external event that is not `event`
  records_event = 2,    ///< each launch records the external event `event`
  is_nested = 16,       ///< the graph is launched as a part of another one
  all_parts = 31,
};

enum class Verb : unsigned char {
  renew_buffer,    ///< drops the buffer, makes a new one and sets all its bytes
  resize_buffer,   ///< device memory moves to a larger block and back
  set_stream,      ///< device memory is freed in another stream's order
  drop_buffer,     ///< operations on a buffer that is not there are left out
  copy,            ///< `bytes` bytes, in the form that `choice` picks
  copy_2d,         ///< `height` rows of `bytes` bytes
  row,             ///< `height` copies in a row: rows.hpp says which
  list,            ///< up to `height` copies by copy_batch(): rows.hpp says which
  fill,            ///< `bytes` bytes, by elements of a width that `choice` picks
  fill_2d,         ///< `height` rows of `bytes` bytes
  scratch_pinned,  ///< copies from a pinned buffer that is dropped at once
  scratch_device,  ///< copies from a device buffer that is dropped at once
  read_function,   ///< a host function that compares bytes
  write_function,  ///< a host function that writes bytes
  throw_function,  ///< a host function that throws
  wait_function,   ///< a host function that waits until the function of the operation `partner` has
                   ///< run
  busy_function,   ///< a host function that computes for a while
  completion,      ///< a function of on_complete()
  gate,  ///< a host function that waits until the thread opens the gate, `bytes` operations later
  host_write,  ///< the thread itself writes bytes
  check,       ///< the thread compares bytes
  record_event,
  wait_event,
  wait_stream,
  synchronize,
  query,
  synchronize_event,
  move_event,
  drop_event,
  elapsed,       ///< times a fill by two timed events
  show_handle,   ///< asks for the native handle: the library cannot know any more what is in the
                 ///< stream
  renew_stream,  ///< drops the stream with the work that is in it, and makes a new one
  trim,          ///< gives cached pinned memory back
  overlap,       ///< copies all bytes of one buffer to another in chunks
  graph,       ///< a graph that copies `bytes` bytes: captured on streams of its own, launched, and
               ///< dropped at once
  refuse,      ///< a call that must throw and change nothing
  starve,      ///< a copy while memory for objects runs out: it throws and does nothing, or works
  fork_child,  ///< a forked child that must be refused and must end
};

struct Operation {
  Verb verb{};
  int id = 0;      ///< stays the same when other operations are removed
  int thread = 0;  ///< of the program
  int visit = 0;  ///< not 0: neighbours with the same number run together on a thread of their own,
                  ///< which ends after them
  int stream = 0;
  int other_stream = 0;
  int buffer = 0;  ///< the one that is written, or read if no other is
  int source = 0;
  int third = 0;  ///< list: another buffer on the side of `source`
  int event = 0;
  int partner = 0;
  size_t at = 0;         ///< offset in `buffer`
  size_t source_at = 0;  ///< offset in `source`
  size_t bytes = 0;      ///< or the width of a row
  size_t height = 1;
  size_t pitch = 0;
  size_t source_pitch = 0;
  unsigned value = 0;   ///< what is written
  unsigned parts = 0;   ///< graph: of GraphPart
  unsigned choice = 0;  ///< seed of the choices between forms of calls and means of ordering

  size_t end() const { return at + bytes; }
  size_t source_end() const { return source_at + bytes; }
  unsigned char byte() const { return static_cast<unsigned char>(value); }
};

struct Program {
  uint64_t seed = 0;
  int threads = 1;
  std::vector<StreamSlot> streams;
  std::vector<BufferSlot> buffers;
  std::vector<Operation> operations;
};

/// What a program may count on. On a machine with shared channels, one host function at a time or
/// little memory, work that looks independent may have to wait for a closed gate.
struct Machine {
  int devices = 1;
  bool one_host_function = false;  ///< a host function must not wait for another one
  bool gates_hold_all = false;     ///< a closed gate may hold any stream: it is opened before the
                                   ///< thread waits for anything
  bool calls_may_wait =
      false;  ///< pinning and freeing memory may wait for all streams, as on a GPU
  bool allocation_faults = true;  ///< operator new can be made to fail
  bool functions_order = true;    ///< a host function that waits for another one orders the two
                                  ///< streams, which the race checker cannot see
};

/// Limits of generate().
struct Limits {
  int operations = 24;  ///< about this many
  int devices = 1;
  int threads = 3;
  bool large = true;    ///< also copies of several MiB
  bool rows = false;    ///< mostly rows and lists of copies between pageable and device memory
  bool staged = false;  ///< nothing but copies of several MiB between pageable and device memory
};

/// The program of this seed: the same on every machine.
Program generate(uint64_t seed, const Limits& limits);

/// A small generator of random numbers that is the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_{seed * 0x9E3779B97F4A7C15U + 0x1234567U} {}
  /// A number below `n`. Requires: n > 0.
  unsigned below(size_t n) { return static_cast<unsigned>(next() % n); }
  bool chance(unsigned percent) { return below(100) < percent; }
  uint64_t next() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }

 private:
  uint64_t state_;
};

}  // namespace random_programs
