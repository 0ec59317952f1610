// SPDX-License-Identifier: Apache-2.0
/// Which work is known to come before which. The order that the library promises is kept as sets of
/// operations: for each line of work, what its next work comes after; for each event, what it
/// covers; for each thread, what it knows to be complete.
#pragma once

#include <bitset>

#include "lower.hpp"

namespace random_programs {

/// Operations by their place in the program.
using Places = std::bitset<max_places>;

/// The last place in a set. Requires: the set is not empty.
inline int last_of(const Places& places) {
  for (size_t i = max_places; i-- > 0;)
    if (places[i]) return static_cast<int>(i);
  return -1;
}

/// The work of one native stream during its life. A stream that is made anew begins a new line.
struct Line {
  int device = 0;
  int slot = 0;  ///< a stream of the program that names it
  bool blocking = false;
  bool is_device_default = false;
  int thread = -1;  ///< the only thread that may name it; -1: all may
  bool gone = false;
  bool frees_may_follow = false;  ///< of buffers that were allocated on it, given to it or used on
                                  ///< it: by any thread, and work of this line
  Places tail;                    ///< what the next work comes after
  Places
      work;  ///< what the last work came after, and itself; without waits that no work has followed
  Places held;              ///< what the line may have to wait for, promised or not
  int exception = -1;       ///< the operation whose exception the next synchronize() throws
  int last_operation = -1;  ///< that used it
};

/// All lines, with the rule of the default stream.
class Lines {
 public:
  int add(Line line) {
    all_.push_back(line);
    return static_cast<int>(all_.size()) - 1;
  }
  Line& operator[](int line) { return nth(all_, line); }
  const Line& operator[](int line) const { return nth(all_, line); }
  int count() const { return static_cast<int>(all_.size()); }

  /// What new work of the line comes after, and what an event that is recorded on it covers.
  Places before(int line) const {
    const Line& own = (*this)[line];
    Places places = own.tail;
    if (!own.blocking) return places;
    for (const Line& other : all_)
      if (&other != &own && other.blocking && other.device == own.device &&
          (own.is_device_default || other.is_device_default))
        places |= other.work;
    return places;
  }
  /// What the line may have to wait for. Whatever touches the default stream, such as an event that
  /// the library records on it, makes all streams that order with it wait for each other.
  Places held(int line) const {
    const Line& own = (*this)[line];
    Places places = own.held;
    for (const Line& other : all_)
      if (own.blocking && other.blocking && other.device == own.device) places |= other.held;
    return places;
  }
  /// What a thread that has synchronized the line knows to be complete. For a blocking stream this
  /// is its own work only.
  Places covered_by_synchronize(int line) const {
    return (*this)[line].is_device_default ? before(line) : (*this)[line].tail;
  }
  /// The same for the whole device.
  Places covered_by_device(int device) const {
    Places places;
    for (const Line& line : all_)
      if (line.device == device) places |= line.work;
    return places;
  }

 private:
  std::vector<Line> all_;
};

/// An access to a part of a buffer.
struct Access {
  int place;
  size_t begin;
  size_t end;
  bool writes;
};

/// A buffer of the program, with the bytes that it has after the operations so far.
struct BufferState {
  bool alive = false;
  int home = -1;  ///< line on which device memory was allocated
  int home_slot = 0;
  std::vector<Access> accesses;
  std::vector<int> recorded;  ///< lines that record_stream() has named
  std::vector<unsigned char> bytes;
  int last_operation = -1;

  /// The accesses that one to this range must come after.
  Places conflicts(size_t begin, size_t end, bool writes) const {
    Places places;
    for (const Access& access : accesses)
      if ((writes || access.writes) && access.begin < end && begin < access.end)
        places.set(static_cast<size_t>(access.place));
    return places;
  }
  Places all_accesses() const { return conflicts(0, static_cast<size_t>(-1), true); }
};

struct EventState {
  Places covers;
  Places held;
  int device = -1;        ///< of the native event; -1: there is none
  bool in_graph = false;  ///< then the native event stays
  int last_operation = -1;
};

}  // namespace random_programs
