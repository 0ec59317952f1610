// SPDX-License-Identifier: Apache-2.0
/// From a program to the calls that carry it out. lower() keeps account of every order that the
/// library promises: stream order, waits, events, host synchronization, the default stream's rule,
/// the end of a thread. Where an access to memory is not yet ordered after an earlier one that
/// conflicts with it, lower() adds a wait, by a means that the operation's `choice` picks. It also
/// computes the bytes that each check must find: the program executed one operation after the
/// other.
#pragma once

#include "program.hpp"

namespace random_programs {

enum class Call : unsigned char {
  wait_stream,    ///< stream waits for other_stream
  wait_value,     ///< stream waits for a number that other_stream writes
  wait_recorded,  ///< stream waits for an event of other_stream that is recorded now and dropped
  record_event,   ///< event, on stream
  wait_event,     ///< stream waits for event
  leave_mark,     ///< records an event on stream, which is kept under the number of the operation
  wait_mark,      ///< stream waits for mark
  synchronize,    ///< stream
  synchronize_event,  ///< event
  synchronize_mark,   ///< mark
  synchronize_device,
  open_gate,    ///< of operation `mark`
  make_stream,  ///< also in place of an old one
  make_buffer,  ///< on stream, if it is device memory
  write_host,   ///< the thread writes the pattern of `value`
  drop_buffer,
  resize_buffer,
  set_stream,
  copy,
  copy_2d,
  row,
  list,
  fill,
  fill_2d,
  scratch_pinned,
  scratch_device,
  record_stream,  ///< buffer, by stream
  read_function,
  write_function,
  throw_function,
  wait_function,
  gate,
  busy_function,
  plain_function,
  completion,
  compare,         ///< the thread reads host memory
  compare_copied,  ///< the thread copies memory to the host on stream, waits and compares
  query,
  show_handle,
  move_event,
  drop_event,
  elapsed,
  trim,
  overlap,
  graph,
  refuse,
  starve,  ///< function or copy; allocation number `value` fails
  fork_child,
};

/// What query must return.
enum class Answer : unsigned char { any, no, yes };

struct Step {
  Call call{};
  int stream = -1;
  int other_stream = -1;
  int buffer = -1;
  int source = -1;
  int third = -1;
  int event = -1;
  int mark = -1;  ///< an operation's place in the program
  int device = 0;
  size_t at = 0;
  size_t source_at = 0;
  size_t bytes = 0;
  size_t height = 1;
  size_t pitch = 0;
  size_t source_pitch = 0;
  unsigned value = 0;
  unsigned form = 0;   ///< which of several spellings
  unsigned parts = 0;  ///< graph: of GraphPart
  int function = -1;   ///< completion: an operation whose host function must have run before
  int exception = -1;  ///< synchronize: the operation whose exception must arrive
  Answer answer = Answer::any;
  bool source_is_free = false;  ///< copy: nothing else uses the source, so that it may be
                                ///< overwritten if the copy is done at the call
  uint64_t digest = 0;          ///< of the bytes that must be found

  unsigned char byte() const { return static_cast<unsigned char>(value); }
};

/// An operation's calls, in order, on one thread.
struct Lowered {
  int place = 0;  ///< in the program
  int thread = 0;
  int visit = 0;
  std::vector<int>
      after;  ///< places of operations of other threads that must have been submitted before
  std::vector<Step> steps;
};

struct Calls {
  std::vector<Lowered> operations;  ///< also the checks at the end
};

/// Requires: the program has at most max_operations operations.
Calls lower(const Program& program, const Machine& machine);

/// Checks of all buffers and the release of streams and buffers come on top.
inline constexpr size_t max_places = 256;
inline constexpr size_t max_operations = 200;
/// Numbers in memory that streams wait for.
inline constexpr unsigned max_values = 64;

}  // namespace random_programs
