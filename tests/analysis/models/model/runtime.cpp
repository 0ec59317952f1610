// SPDX-License-Identifier: Apache-2.0
/// What compilers and the C++ run-time call. The checked sources are compiled with
/// -fsanitize=thread, and linked with this file instead of the sanitizer: so it sees each plain
/// access, and each atomic operation of types that are not replaced. Allocations of a run come from
/// an arena, which is given up as a whole.
#include "state.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

using std::size_t;

extern "C" {
extern unsigned char __executable_start[], __data_start[], _end[];
extern char __libc_single_threaded;
}

namespace model {

static constinit State before_runs{};  // the program's own beginning is no run
State* state = &before_runs;
Location* locations;
Operation* trace;
unsigned char* arena;

namespace {

Cell* arena_cells;
Cell* static_cells;
unsigned char* initial_data;

void* map(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return memory;
}

bool is_in_arena(const void* at) { return at >= arena && at < arena + arena_bytes; }

/// The cell of the first byte; null if plain accesses there are not watched.
Cell* cell_of(const void* at) {
  const auto* const byte = static_cast<const unsigned char*>(at);
  if (is_in_arena(at)) return arena_cells + (byte - arena);
  if (byte >= __data_start && byte < _end) return static_cells + (byte - __data_start);
  return nullptr;
}

bool happened(uint8_t thread, uint32_t when) { return self().knows.happened.at[thread] >= when; }

void fresh(Cell& cell) {
  if (cell.run == state->run) return;
  cell = {};
  cell.run = state->run;
}

uint32_t offset_of(const void* where) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(where) - __executable_start);
}

[[noreturn]] void fail_access(const char* what, const Cell& cell, const void* where) {
  state->blamed = {
      {{cell.writer,
        cell.where == 0 ? 0 : reinterpret_cast<uintptr_t>(__executable_start) + cell.where},
       {static_cast<uint8_t>(state->current), reinterpret_cast<uintptr_t>(where)}}};
  fail(what);
}

void note_read(Cell& cell, uint8_t me, uint32_t epoch) {
  const size_t slot =
      cell.read[0] == 0 || cell.reader[0] == me || happened(cell.reader[0], cell.read[0]) ? 0 : 1;
  cell.reader[slot] = me;
  cell.read[slot] = epoch;
}

void access(Cell& cell, bool writes, const void* where) {
  fresh(cell);
  const auto me = static_cast<uint8_t>(state->current);
  const uint32_t epoch = state->all[me].epoch(me);
  if (cell.freed) fail_access("memory is used after it was freed", cell, where);
  if (cell.written != 0 && !happened(cell.writer, cell.written))
    fail_access(writes ? "two threads write at once" : "a thread reads what another writes at once",
                cell, where);
  if (!writes) return note_read(cell, me, epoch);
  for (size_t slot : range(2UL))
    if (cell.read[slot] != 0 && !happened(cell.reader[slot], cell.read[slot]))
      fail_access("a thread writes what another reads at once", cell, where);
  cell.read = {};
  cell.writer = me;
  cell.written = epoch;
  cell.where = offset_of(where);
}

}  // namespace

void check_access(const void* at, size_t bytes, bool writes, const void* where) {
  if (!state->in_run) return;
  Cell* const cells = cell_of(at);
  if (cells == nullptr) return;
  constexpr size_t looked_at = 32;  // of a large block only the ends
  for (size_t i = 0; i < bytes; ++i) {
    if (i == looked_at && bytes > 4 * looked_at) i = bytes - looked_at;
    access(cells[i], writes, where);
  }
}

void check_atomic(const void* at, const void* where) {
  if (Cell* const cell = cell_of(at)) access(*cell, false, where);
}

void prepare_memory() {
  prepare_fibers();
  __libc_single_threaded = 0;  // or reference counts would not be atomic
  arena = static_cast<unsigned char*>(map(arena_bytes));
  arena_cells = static_cast<Cell*>(map(arena_bytes * sizeof(Cell)));
  const auto data_bytes = static_cast<size_t>(_end - __data_start);
  static_cells = static_cast<Cell*>(map(data_bytes * sizeof(Cell)));
  locations = static_cast<Location*>(map(max_locations * sizeof(Location)));
  trace = static_cast<Operation*>(map(max_operations * sizeof(Operation)));
  state = new (map(sizeof(State))) State;
  initial_data = static_cast<unsigned char*>(map(data_bytes));
  std::memcpy(initial_data, __data_start, data_bytes);
}

void forget_memory() {
  std::memcpy(__data_start, initial_data, static_cast<size_t>(_end - __data_start));
  state->allocated = 0;
}

void call_at_thread_end() {
  Fiber& fiber = self().fiber;
  while (fiber.at_end != nullptr) {
    const ThreadEnd end = *fiber.at_end;
    fiber.at_end = end.next;
    end.call(end.argument);
  }
}

namespace {

void* allocate(size_t bytes, size_t alignment) {
  if (!state->in_run)
    return alignment > 16
               ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
               : std::malloc(bytes + 1);
  // Some bytes between blocks belong to none, and nothing is used twice: so what was freed is
  // recognised.
  const size_t place = (state->allocated + alignment - 1) / alignment * alignment;
  if (place + bytes + 16 > arena_bytes) fail("the run has used up the checker's memory");
  state->allocated = place + bytes + 16;
  std::memset(arena + place, 0xA5, std::min<size_t>(bytes, 8192));
  return arena + place;
}

void release(void* block, const void* where) {
  if (!is_in_arena(block)) return std::free(block);
  if (!state->in_run) return;
  // How large it is, nobody says: up to the next block's begin, at most.
  Cell* const cell = cell_of(block);
  access(*cell, true, where);
  cell->freed = true;
}

void release_sized(void* block, size_t bytes, const void* where) {
  if (!is_in_arena(block) || !state->in_run) return release(block, where);
  Cell* const cells = cell_of(block);
  for (size_t i = 0; i < bytes; i += bytes > 1024 ? 8 : 1) {
    access(cells[i], true, where);
    cells[i].freed = true;
  }
}

/// What atomic operations of other types do, as __tsan_ functions.
template <class T>
[[gnu::always_inline]] inline T change(volatile T* at, T value, int order, Change how,
                                       bool is_count) {
  return static_cast<T>(read_modify_write(const_cast<T*>(at), sizeof(T), how, value,
                                          static_cast<Order>(order), is_count));
}
template <class T>
[[gnu::always_inline]] inline bool change_if(volatile T* at, T& expected, T value, int order,
                                             int failure, bool weak) {
  uint64_t found = expected;
  const bool done = compare_exchange(const_cast<T*>(at), sizeof(T), found, value,
                                     static_cast<Order>(order), static_cast<Order>(failure), weak);
  expected = static_cast<T>(found);
  return done;
}

}  // namespace
}  // namespace model

// Allocation

void* operator new(size_t bytes) { return model::allocate(bytes, 16); }
void* operator new[](size_t bytes) { return model::allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return model::allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { model::release(block, MODEL_CALLER); }
void operator delete[](void* block) noexcept { model::release(block, MODEL_CALLER); }
void operator delete(void* block, std::align_val_t) noexcept {
  model::release(block, MODEL_CALLER);
}
void operator delete(void* block, size_t bytes) noexcept {
  model::release_sized(block, bytes, MODEL_CALLER);
}
void operator delete[](void* block, size_t bytes) noexcept {
  model::release_sized(block, bytes, MODEL_CALLER);
}
void operator delete(void* block, size_t bytes, std::align_val_t) noexcept {
  model::release_sized(block, bytes, MODEL_CALLER);
}

extern "C" {

// Plain accesses
#define MODEL_READ(at, bytes) model::check_access(at, bytes, false, MODEL_CALLER)
#define MODEL_WRITE(at, bytes) model::check_access(at, bytes, true, MODEL_CALLER)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** at, void*) { MODEL_WRITE(at, sizeof *at); }
void __tsan_vptr_read(void** at) { MODEL_READ(at, sizeof *at); }
void __tsan_read_range(void* at, size_t bytes) { MODEL_READ(at, bytes); }
void __tsan_write_range(void* at, size_t bytes) { MODEL_WRITE(at, bytes); }

#define MODEL_PLAIN(size)                                                \
  void __tsan_read##size(void* at) { MODEL_READ(at, size); }             \
  void __tsan_write##size(void* at) { MODEL_WRITE(at, size); }           \
  void __tsan_unaligned_read##size(void* at) { MODEL_READ(at, size); }   \
  void __tsan_unaligned_write##size(void* at) { MODEL_WRITE(at, size); } \
  void __tsan_volatile_read##size(void* at) { MODEL_READ(at, size); }    \
  void __tsan_volatile_write##size(void* at) { MODEL_WRITE(at, size); }  \
  void __tsan_read_write##size(void* at) { MODEL_WRITE(at, size); }
MODEL_PLAIN(1)
MODEL_PLAIN(2)
MODEL_PLAIN(4)
MODEL_PLAIN(8)
MODEL_PLAIN(16)
#undef MODEL_PLAIN

// Copies of bytes; of a large block only the ends are copied in a run, because only those are
// looked at.
void* __real_memcpy(void* to, const void* from, size_t bytes);
void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  if (!model::state->in_run) return __real_memcpy(to, from, bytes);
  MODEL_READ(from, bytes);
  MODEL_WRITE(to, bytes);
  constexpr size_t most = 8192, end = 64;
  if (bytes <= most) return __real_memcpy(to, from, bytes);
  __real_memcpy(to, from, end);
  __real_memcpy(static_cast<unsigned char*>(to) + bytes - end,
                static_cast<const unsigned char*>(from) + bytes - end, end);
  return to;
}

// Atomic operations of types that are not replaced: reference counts of std::shared_ptr, and those
// of public headers

#define MODEL_ATOMIC(size, type)                                                                   \
  type __tsan_atomic##size##_load(const volatile type* at, int order) {                            \
    return static_cast<type>(                                                                      \
        model::load(const_cast<const type*>(at), sizeof(type), static_cast<model::Order>(order))); \
  }                                                                                                \
  void __tsan_atomic##size##_store(volatile type* at, type value, int order) {                     \
    model::store(const_cast<type*>(at), sizeof(type), value, static_cast<model::Order>(order));    \
  }                                                                                                \
  type __tsan_atomic##size##_exchange(volatile type* at, type value, int order) {                  \
    return model::change(at, value, order, [](uint64_t, uint64_t fresh) { return fresh; }, false); \
  }                                                                                                \
  type __tsan_atomic##size##_fetch_add(volatile type* at, type value, int order) {                 \
    return model::change(                                                                          \
        at, value, order,                                                                          \
        [](uint64_t old, uint64_t more) { return uint64_t{static_cast<type>(old + more)}; },       \
        true);                                                                                     \
  }                                                                                                \
  type __tsan_atomic##size##_fetch_sub(volatile type* at, type value, int order) {                 \
    return model::change(                                                                          \
        at, value, order,                                                                          \
        [](uint64_t old, uint64_t less) { return uint64_t{static_cast<type>(old - less)}; },       \
        true);                                                                                     \
  }                                                                                                \
  int __tsan_atomic##size##_compare_exchange_strong(volatile type* at, type* expected, type value, \
                                                    int order, int failure) {                      \
    return model::change_if(at, *expected, value, order, failure, false);                          \
  }                                                                                                \
  type __tsan_atomic##size##_compare_exchange_val(volatile type* at, type expected, type value,    \
                                                  int order, int failure) {                        \
    model::change_if(at, expected, value, order, failure, false);                                  \
    return expected;                                                                               \
  }                                                                                                \
  int __tsan_atomic##size##_compare_exchange_weak(volatile type* at, type* expected, type value,   \
                                                  int order, int failure) {                        \
    return model::change_if(at, *expected, value, order, failure, true);                           \
  }
MODEL_ATOMIC(8, uint8_t)
MODEL_ATOMIC(16, std::uint16_t)
MODEL_ATOMIC(32, uint32_t)
MODEL_ATOMIC(64, uint64_t)
#undef MODEL_ATOMIC

// Objects that are constructed at first use

int __cxa_guard_acquire(uint64_t* guard) {
  auto* const done = reinterpret_cast<unsigned char*>(guard);
  if (!model::state->in_run) return *done == 0;
  model::lock(done + 1);
  if (model::load(done, 1, model::Order::acquire) == 0 && *done == 0) return 1;
  model::unlock(done + 1);
  return 0;
}
void __cxa_guard_release(uint64_t* guard) {
  auto* const done = reinterpret_cast<unsigned char*>(guard);
  if (!model::state->in_run) {
    *done = 1;
    return;
  }
  model::store(done, 1, 1, model::Order::release);
  model::unlock(done + 1);
}
void __cxa_guard_abort(uint64_t* guard) {
  if (model::state->in_run) model::unlock(reinterpret_cast<unsigned char*>(guard) + 1);
}

/// Only runs end threads; at the end of the program nothing is left to do.
int __cxa_thread_atexit(void (*call)(void*), void* argument, void*) {
  if (!model::state->in_run) return 0;
  model::Fiber& fiber = model::self().fiber;
  fiber.at_end = new model::ThreadEnd{call, argument, fiber.at_end};
  return 0;
}
}
