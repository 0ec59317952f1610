// SPDX-License-Identifier: Apache-2.0
/// Short programs over the public API for the fault sweep. `sweep_scenarios` lists them with the
/// environment that each one needs. With a name it runs one scenario, checks the invariants and
/// prints a summary. Destructors run outside of attempts, because they must not throw.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <runnel/trace.hpp>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../../support/foreign_capture.hpp"
#include "checker.hpp"
#include "gate.hpp"
#ifdef SWEEP_COMMUNICATORS
#include "communicators.hpp"
#endif
#ifdef SWEEP_SENDERS
#include "senders.hpp"
#endif

namespace {
using namespace runnel;
using namespace sweep;
using test_support::vendor;
using namespace std::chrono_literals;

constexpr Device first{0};
constexpr Device second{1};

/// Sets the thread's current stream. After that, snapshots make no runtime call.
bool begin(Checker& c) {
  return c.attempt("current_stream", [] { static_cast<void>(current_stream()); });
}

std::vector<int> numbers(std::size_t n, int from = 1) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), from);
  return v;
}

/// Work that is enqueued before the fault. It must complete with the right bytes, and its objects
/// must stay usable.
struct Bystander {
  std::optional<Stream> stream;
  std::optional<PinnedBuffer<int>> in, out;
  std::optional<DeviceBuffer<int>> between;
  // never freed: a function may still run after the scenario has ended early
  std::atomic<int>& ran = *new std::atomic<int>{0};

  bool start(Checker& c) {
    if (!begin(c)) return false;
    const bool made = c.attempt("bystander: Stream", [&] { stream.emplace(); }) &&
                      c.attempt("bystander: PinnedBuffer", [&] { in.emplace(64U); }) &&
                      c.attempt("bystander: PinnedBuffer", [&] { out.emplace(64U); }) &&
                      c.attempt("bystander: DeviceBuffer", [&] { between.emplace(64U, *stream); });
    if (!made) return false;
    std::iota(in->begin(), in->end(), 7);
    std::fill(out->begin(), out->end(), 0);
    return c.attempt("bystander: copy in", [&] { copy(*stream, *between, *in); }) &&
           c.attempt("bystander: copy out", [&] { copy(*stream, *out, *between); }) &&
           c.attempt("bystander: host function", [&] { stream->launch_host_func(Callable{&ran}); });
  }
  bool check(Checker& c) {
    if (!c.attempt("bystander: synchronize", [&] { stream->synchronize(); })) return false;
    c.require(std::equal(in->begin(), in->end(), out->begin()),
              "work enqueued before the fault did not arrive");
    c.require(ran == 1, "a host function enqueued before the fault did not run once");
    return c.attempt("bystander: use again",
                     [&] {
                       fill(*stream, *out, 3);
                       stream->synchronize();
                     }) &&
           (c.require(std::all_of(out->begin(), out->end(), [](int x) { return x == 3; }),
                      "a later fill did not arrive"),
            true);
  }
};

void streams(Checker& c) {
  if (!begin(c)) return;
  std::optional<Stream> plain, urgent, blocking;
  if (!c.attempt("Stream", [&] { plain.emplace(); })) return;
  if (!c.attempt("Stream, priority", [&] {
        urgent.emplace(StreamOptions{.priority = Priority::high, .name = "urgent"});
      }))
    return;
  if (!c.attempt("Stream, blocking",
                 [&] { blocking.emplace(first, StreamOptions{.blocking = true}); }))
    return;
  if (!c.attempt("priority", [&] {
        c.require(urgent->priority() <= plain->priority(), "the priority is lost");
      }))
    return;
  c.require(blocking->is_blocking() && !plain->is_blocking(), "blocking is not what was asked for");
  Stream moved{std::move(*plain)};
  if (!c.attempt("synchronize", [&] { moved.synchronize(); })) return;
  if (!c.attempt("query", [&] { static_cast<void>(moved.query()); })) return;
  *urgent = std::move(moved);
  static_cast<void>(c.attempt("synchronize", [&] { urgent->synchronize(); }));
}

void wait_stream(Checker& c) {
  c.keeps_streams(4);
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> other;
  std::optional<PinnedBuffer<int>> result;
  if (!c.attempt("Stream", [&] { other.emplace(); })) return;
  if (!c.attempt("PinnedBuffer", [&] { result.emplace(64U); })) return;
  Gate gate;
  if (!gate.close_on(c, *b.stream)) return;
  if (!c.attempt("fill", [&] { fill(*b.stream, *b.between, 9); })) return;
  if (!c.attempt("wait_stream", [&] { other->wait_stream(*b.stream); })) return;
  // synchronize() may fail
  if (!c.attempt("record_stream", [&] { b.between->record_stream(*other); })) return;
  if (!c.attempt("copy", [&] { copy(*other, *result, *b.between); })) return;
  gate.open();
  if (!c.attempt("synchronize", [&] { other->synchronize(); })) return;
  c.require(std::all_of(result->begin(), result->end(), [](int x) { return x == 9; }),
            "the copy did not wait");
  static_cast<void>(b.check(c));
}

void wait_default_streams(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<StreamRef> far, near;
  c.keeps_events(2);
  if (!c.attempt("default_stream", [&] { far = second.default_stream(); })) return;
  if (!c.attempt("default_stream", [&] { near = first.default_stream(); })) return;
  if (!c.attempt("wait_stream", [&] { far->wait_stream(*b.stream); })) return;
  if (!c.attempt("wait_stream", [&] { near->wait_stream(*far); })) return;
  if (!c.attempt("wait_stream", [&] { b.stream->wait_stream(*near); })) return;
  if (!c.attempt("query", [&] { static_cast<void>(far->query()); })) return;
  if (!c.attempt("synchronize", [&] { far->synchronize(); })) return;
  if (!c.attempt("per_thread_default", [&] { StreamRef::per_thread_default(first).synchronize(); }))
    return;
  static_cast<void>(b.check(c));
}

void events(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> other;
  if (!c.attempt("Stream", [&] { other.emplace(); })) return;
  std::optional<Event> made;
  Event event;
  Gate gate;
  if (!gate.close_on(c, *other)) return;
  if (!c.attempt("Event of a stream", [&] { made.emplace(*other); })) return;
  // If recording again fails, the event keeps its previous record.
  if (!c.attempt("record again", [&] {
        try {
          made->record(*other);
        } catch (...) {
          if (c.sound()) c.require(!made->query(), "a failed record lost the previous record");
          throw;
        }
      }))
    return;
  if (!c.attempt("record", [&] { event.record(*other); })) return;
  if (!c.attempt("query", [&] { c.require(!made->query(), "an event behind a gate is complete"); }))
    return;
  if (!c.attempt("wait_event", [&] { b.stream->wait_event(event); })) return;
  gate.open();
  if (!c.attempt("synchronize", [&] { event.synchronize(); })) return;
  if (!c.attempt("synchronize_for",
                 [&] { c.require(made->synchronize_for(patience), "the event never comes"); }))
    return;
  static_cast<void>(b.check(c));
}

void timed_events(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<TimedEvent> start, stop;
  if (!c.attempt("TimedEvent", [&] { start.emplace(*b.stream); })) return;
  if (!c.attempt("host function", [&] { b.stream->launch_host_func(Callable{}); })) return;
  if (!c.attempt("TimedEvent", [&] { stop.emplace(*b.stream); })) return;
  if (!c.attempt("synchronize", [&] { stop->synchronize(); })) return;
  // 600 from the difference itself correctly means "not ready".
  if (!c.attempt("difference", [&] { c.require(*stop - *start >= 0ns, "time runs backwards"); }))
    return;
  static_cast<void>(b.check(c));
}

void event_options(Checker& c) {
  if (!begin(c)) return;
  std::optional<Stream> stream;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  Event patient{EventOptions{.blocking_wait = true}};
  Event shared{EventOptions{.interprocess = true}};
  // The first record makes the native event. If it fails, the event is not counted unless it
  // exists.
  if (!c.attempt("record a blocking event", [&] { patient.record(*stream); })) return;
  if (!c.attempt("record an interprocess event", [&] { shared.record(*stream); })) return;
  if (!c.attempt("synchronize", [&] { patient.synchronize(); })) return;
  if (!c.attempt("synchronize", [&] { shared.synchronize(); })) return;
  patient = Event{};
}

void event_moves_between_devices(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> far;
  if (!c.attempt("Stream", [&] { far.emplace(second); })) return;
  Gate gate;
  if (!gate.close_on(c, *b.stream)) return;
  Event event;
  if (!c.attempt("record here", [&] { event.record(*b.stream); })) return;
  if (!c.attempt("record there", [&] {
        try {
          event.record(*far);
        } catch (...) {
          if (c.sound())
            c.require(!event.query() && event.device() == first,
                      "a failed record lost the previous record");
          throw;
        }
      }))
    return;
  c.require(event.device() == second, "the event is on the wrong device");
  if (!c.attempt("synchronize", [&] { event.synchronize(); })) return;
  gate.open();
  static_cast<void>(b.check(c));
}

void pool(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<StreamPool> pool;
  std::array<std::optional<StreamLease>, 4> leases;
  if (!c.attempt("StreamPool",
                 [&] { pool.emplace(first, StreamPoolOptions{.size = 2, .max = 4}); }))
    return;
  for (auto& lease : leases)
    if (!c.attempt("acquire", [&] { lease.emplace(pool->acquire()); })) return;
  c.require(pool->leased() == 4 && pool->size() == 4 && pool->growth() == 2,
            "the pool counts wrongly");
  if (!c.attempt("wait_stream", [&] { leases[0]->wait_stream(*b.stream); })) return;
  if (!c.attempt("use", [&] { leases[0]->launch_host_func(Callable{}); })) return;
  leases[1].reset();
  if (!c.attempt("acquire again", [&] { leases[1].emplace(pool->acquire()); })) return;
  pool.reset();
  if (!c.attempt("synchronize", [&] { leases[0]->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

void copies_pinned(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<PinnedBuffer<int>> in, out;
  std::optional<DeviceBuffer<int>> one, two;
  if (!c.attempt("PinnedBuffer", [&] { in.emplace(4096U); })) return;
  if (!c.attempt("PinnedBuffer", [&] { out.emplace(4096U); })) return;
  if (!c.attempt("DeviceBuffer", [&] { one.emplace(4096U, *b.stream); })) return;
  if (!c.attempt("DeviceBuffer", [&] { two.emplace(4096U, *b.stream); })) return;
  std::iota(in->begin(), in->end(), 1);
  if (!c.attempt("copy, unknown kinds",
                 [&] { copy_bytes(*b.stream, one->data(), in->data(), in->size_bytes()); }))
    return;
  if (!c.attempt("copy, device to device", [&] { copy(*b.stream, *two, *one); })) return;
  if (!c.attempt("copy, block", [&] { copy(*b.stream, *out, *two, Pageable::block); })) return;
  if (!c.attempt("copy, host to host", [&] { copy_bytes(*b.stream, out->data(), in->data(), 64); }))
    return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  c.require(std::equal(in->begin(), in->end(), out->begin()), "wrong bytes");
  in.reset();
  // The stream used the block, so the pool hands it out again only once the stream is done.
  if (!c.attempt("PinnedBuffer again", [&] { in.emplace(4096U); })) return;
  static_cast<void>(b.check(c));
}

void copies_small(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  const auto& in = *new std::vector<int>(numbers(1000));  // never freed, as in copies_staged
  auto& out = *new std::vector<int>(1000);
  std::optional<DeviceBuffer<int>> on_device;
  if (!c.attempt("DeviceBuffer", [&] { on_device.emplace(1000U, *b.stream); })) return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  if (!c.attempt("copy in", [&] { copy(*b.stream, *on_device, in); })) return;
  if (!c.attempt("copy out", [&] { copy(*b.stream, out, *on_device); })) return;
  if (!c.attempt("copy, block", [&] { copy(*b.stream, out, *on_device, Pageable::block); })) return;
  if (!c.attempt("copy, host to host",
                 [&] { copy(*b.stream, std::span{out}.first(10), std::span{in}.first(10)); }))
    return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  c.require(in == out, "wrong bytes");
  static_cast<void>(b.check(c));
}

/// A copy that needs more pieces than a ring has slots.
constexpr std::size_t large = (std::size_t{5} << 20) / sizeof(int);

/// After synchronize() has reported a lost device, no thread of the library writes to the memory
/// any more. (A host function that is being called goes on.)
void require_untouched(Checker& c, std::vector<std::vector<int>>& memory) {
  for (std::vector<int>& each : memory) std::fill(each.begin(), each.end(), -1);
  std::this_thread::sleep_for(std::chrono::milliseconds{5});
  for (const std::vector<int>& each : memory)
    c.require(std::count(each.begin(), each.end(), -1) == std::ssize(each),
              "a worker wrote to memory");
}

/// A copy that throws no longer uses the caller's memory, so the caller may free the memory at
/// once.
void copies_staged(Checker& c, bool busy, std::size_t size, bool by_workers = true) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> stream;
  std::optional<DeviceBuffer<int>> on_device;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { on_device.emplace(size, *stream); })) return;
  if (!busy && !c.attempt("synchronize", [&] { stream->synchronize(); })) return;
  // The memory of the copies that succeeded. Never freed, because pending copies cannot be waited
  // for if the runtime is lost.
  auto& in = *new std::vector<std::vector<int>>;
  auto& out = *new std::vector<std::vector<int>>;
  for (int i = 0; i < 2; ++i) {
    Gate gate;
    if (busy && !gate.close_on(c, *stream)) return;
    if (!c.attempt("staged copy in", [&] {
          std::vector<int> source = numbers(size, i);
          copy(*stream, *on_device, source);
          in.push_back(std::move(source));
        }))
      return;
    if (!c.attempt("staged copy out", [&] {
          std::vector<int> target(size, -1);
          copy(*stream, target, *on_device);
          out.push_back(std::move(target));
        }))
      return;
    gate.open();
  }
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) {
    if (c.told_lost() && by_workers) require_untouched(c, out);
    return;
  }
  for (std::size_t i = 0; i < in.size(); ++i) c.require(in[i] == out[i], "wrong bytes");
  static_cast<void>(b.check(c));
}
void copies_staged_idle(Checker& c) { copies_staged(c, false, large); }
void copies_staged_busy(Checker& c) { copies_staged(c, true, large); }
void copies_staged_by_host_functions(Checker& c) { copies_staged(c, true, large, false); }
void copies_staged_short(Checker& c) { copies_staged(c, true, std::size_t{200000}); }

/// Memory of the copies that succeeded, and of those that threw. Never freed, as in copies_staged.
struct RowMemory {
  std::vector<std::vector<int>> used, given_up;
  /// Calls `f(memory)`. After an exception the memory is the caller's again.
  template <class F>
  void with(std::vector<int> memory, F&& f) {
    try {
      f(memory);
    } catch (...) {
      std::fill(memory.begin(), memory.end(), -1);
      given_up.push_back(std::move(memory));
      throw;
    }
    used.push_back(std::move(memory));
  }
};

constexpr std::size_t long_row = 12, short_row = 4;
constexpr std::size_t small_in_row = 10'000, large_in_row = 300'000;

/// A row of copies to the device. The later ones are filled while the earlier ones travel.
void row_to_device(Checker& c, std::size_t count, std::size_t size) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> stream;
  std::optional<DeviceBuffer<int>> on_device;
  std::optional<PinnedBuffer<int>> out;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { on_device.emplace(count * size, *stream); })) return;
  if (!c.attempt("PinnedBuffer", [&] { out.emplace(count * size); })) return;
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) return;
  auto& memory = *new RowMemory;
  for (std::size_t i = 0; i < count; ++i) {
    if (!c.attempt("copy in a row to the device", [&] {
          memory.with(numbers(size, static_cast<int>(i)), [&](const std::vector<int>& source) {
            copy(*stream, on_device->span().subspan(i * size, size), source);
          });
        }))
      return;
  }
  if (!c.attempt("copy, pinned", [&] { copy(*stream, *out, *on_device); })) return;
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) return;
  for (std::size_t i = 0; i < count; ++i)
    c.require(std::equal(memory.used[i].begin(), memory.used[i].end(),
                         out->begin() + static_cast<long>(i * size)),
              "wrong bytes");
  static_cast<void>(b.check(c));
}
void row_to_device_small(Checker& c) { row_to_device(c, long_row, small_in_row); }
void row_to_device_large(Checker& c) { row_to_device(c, short_row, large_in_row); }

void row_to_host(Checker& c, std::size_t count, std::size_t size) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> stream;
  std::optional<DeviceBuffer<int>> on_device;
  std::optional<PinnedBuffer<int>> in;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { on_device.emplace(count * size, *stream); })) return;
  if (!c.attempt("PinnedBuffer", [&] { in.emplace(count * size); })) return;
  std::iota(in->begin(), in->end(), 0);
  if (!c.attempt("copy, pinned", [&] { copy(*stream, *on_device, *in); })) return;
  auto& memory = *new RowMemory;
  for (std::size_t i = 0; i < count; ++i) {
    if (!c.attempt("copy in a row to the host", [&] {
          memory.with(std::vector<int>(size, -1), [&](std::vector<int>& target) {
            copy(*stream, target, on_device->span().subspan(i * size, size));
          });
        }))
      return;
  }
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) {
    if (c.told_lost()) require_untouched(c, memory.used);
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    c.require(memory.used[i] == numbers(size, static_cast<int>(i * size)), "wrong bytes");
  for (const std::vector<int>& each : memory.given_up)
    c.require(std::count(each.begin(), each.end(), -1) == std::ssize(each),
              "a copy that threw has written to memory afterwards");
  static_cast<void>(b.check(c));
}
void row_to_host_small(Checker& c) { row_to_host(c, long_row, small_in_row); }
void row_to_host_large(Checker& c) { row_to_host(c, short_row, large_in_row); }

/// Lists of blocks in shuffled order: all of them to the device, all of them to the host, and both
/// in one list beside pinned memory.
void lists(Checker& c, bool by_workers) {
  constexpr std::size_t blocks = 12, size = 15'000, all = blocks * size;
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> stream;
  std::optional<DeviceBuffer<int>> one, two;
  std::optional<PinnedBuffer<int>> pinned;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { one.emplace(all, *stream); })) return;
  if (!c.attempt("DeviceBuffer", [&] { two.emplace(all, *stream); })) return;
  if (!c.attempt("PinnedBuffer", [&] { pinned.emplace(2 * size); })) return;
  const auto list = [&](int* to, const int* from) {
    std::vector<CopyOperation> operations;
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::size_t at = i * 5 % blocks * size;
      operations.push_back({to + at, from + at, size * sizeof(int)});
    }
    return operations;
  };
  auto& sources = *new RowMemory;
  auto& targets = *new RowMemory;
  if (!c.attempt("list to the device", [&] {
        sources.with(numbers(all), [&](const std::vector<int>& source) {
          copy_batch(*stream, list(one->data(), source.data()));
        });
      }))
    return;
  if (!c.attempt("list to the host", [&] {
        targets.with(std::vector<int>(all, -1), [&](std::vector<int>& target) {
          copy_batch(*stream, list(target.data(), one->data()));
        });
      }))
    return;
  // After an exception other operations of a list may have been enqueued.
  auto& in = *new std::vector<int>(numbers(all, 5));
  auto& out = *new std::vector<int>(all, -1);
  if (!c.attempt("list in both directions", [&] {
        std::vector<CopyOperation> operations = list(two->data(), in.data());
        for (const CopyOperation& each : list(out.data(), one->data())) operations.push_back(each);
        for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
          operations.push_back(
              {pinned->data() + i * size, one->data() + i * size, size * sizeof(int)});
        copy_batch(*stream, operations);
      }))
    return;
  auto& back = *new std::vector<int>(all, -1);
  if (!c.attempt("list to the host", [&] { copy_batch(*stream, list(back.data(), two->data())); }))
    return;
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) {
    if (c.told_lost() && by_workers) require_untouched(c, targets.used);
    return;
  }
  c.require(targets.used.front() == numbers(all) && out == numbers(all) && back == in,
            "wrong bytes");
  c.require(std::equal(pinned->begin(), pinned->end(), out.begin()),
            "wrong bytes in pinned memory");
  for (const std::vector<int>& each : targets.given_up)
    c.require(std::count(each.begin(), each.end(), -1) == std::ssize(each),
              "a list that threw has written to memory afterwards");
  static_cast<void>(b.check(c));
}

void lists_staged(Checker& c) { lists(c, true); }
void lists_by_host_functions(Checker& c) { lists(c, false); }

void copies_2d(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  constexpr std::size_t width = 300, height = 400, pitch = 512;
  auto& in = *new std::vector<unsigned char>(pitch * height);  // never freed, as in copies_staged
  auto& out = *new std::vector<unsigned char>(pitch * height);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7);
  std::optional<DeviceBuffer<unsigned char>> one, two;
  if (!c.attempt("DeviceBuffer", [&] { one.emplace(pitch * height, *b.stream); })) return;
  if (!c.attempt("DeviceBuffer", [&] { two.emplace(pitch * height, *b.stream); })) return;
  if (!c.attempt("copy_2d in",
                 [&] { copy_2d(*b.stream, one->data(), width, in.data(), pitch, width, height); }))
    return;
  if (!c.attempt("copy_2d on the device", [&] {
        copy_2d(*b.stream, two->data(), pitch, one->data(), width, width, height);
      }))
    return;
  if (!c.attempt("copy_2d out",
                 [&] { copy_2d(*b.stream, out.data(), pitch, two->data(), pitch, width, height); }))
    return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  for (std::size_t row = 0; row < height; ++row)
    if (std::memcmp(&in[row * pitch], &out[row * pitch], width) != 0)
      return c.violation("wrong bytes in row %zu", row);
  static_cast<void>(b.check(c));
}

struct Wide {
  int a, b, c;
  bool operator==(const Wide&) const = default;
};

void fills(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<DeviceBuffer<Wide>> wide;
  std::optional<DeviceBuffer<short>> two;
  std::optional<PinnedBuffer<Wide>> wide_out;
  std::optional<PinnedBuffer<short>> two_out;
  // Never freed: a broken runtime may still call functions that fill this memory, and the scenario
  // cannot wait for them.
  auto& ordinary = *new std::vector<int>(100);
  auto& ordinary_wide = *new std::vector<Wide>(100);
  if (!c.attempt("DeviceBuffer", [&] { wide.emplace(1000U, *b.stream); })) return;
  if (!c.attempt("DeviceBuffer", [&] { two.emplace(1000U, *b.stream); })) return;
  if (!c.attempt("PinnedBuffer", [&] { wide_out.emplace(1000U); })) return;
  if (!c.attempt("PinnedBuffer", [&] { two_out.emplace(1000U); })) return;
  if (!c.attempt("fill, 12 bytes", [&] { fill(*b.stream, *wide, Wide{1, 2, 3}); })) return;
  if (!c.attempt("fill, 2 bytes", [&] { fill(*b.stream, *two, short{0x0102}); })) return;
  if (!c.attempt("fill, 4 bytes", [&] {
        fill(*b.stream, DeviceSpan<int>{reinterpret_cast<int*>(two->data()), 2}, 0x01020304);
      }))
    return;
  if (!c.attempt("fill, ordinary memory", [&] { fill(*b.stream, ordinary, 5); })) return;
  if (!c.attempt("fill, ordinary memory, wide",
                 [&] { fill(*b.stream, ordinary_wide, Wide{4, 5, 6}); }))
    return;
  if (!c.attempt("fill_2d", [&] { fill_2d(*b.stream, two->data(), 100, 1, 50, 4); })) return;
  if (!c.attempt("copy", [&] { copy(*b.stream, *wide_out, *wide); })) return;
  if (!c.attempt("copy", [&] { copy(*b.stream, *two_out, *two); })) return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  c.require(
      std::all_of(wide_out->begin(), wide_out->end(), [](Wide w) { return w == Wide{1, 2, 3}; }),
      "wrong bytes, wide");
  c.require((*two_out)[999] == 0x0102 && (*two_out)[0] == 0x0101, "wrong bytes, two");
  c.require(std::count(ordinary.begin(), ordinary.end(), 5) == 100, "wrong bytes, ordinary");
  c.require(std::count(ordinary_wide.begin(), ordinary_wide.end(), Wide{4, 5, 6}) == 100,
            "wrong bytes, ordinary, wide");
  static_cast<void>(b.check(c));
}

void host_functions(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  // never freed: a function may still run after the scenario has ended early
  std::atomic<int>& ran = *new std::atomic<int>{0};
  for (int i = 0; i < 3; ++i)
    if (!c.attempt("host function", [&] { b.stream->launch_host_func(Callable{&ran}); })) return;
  if (!c.attempt("throwing host function", [&] {
        b.stream->launch_host_func([alive = Callable{}] { throw std::runtime_error{"mine"}; });
      }))
    return;
  bool delivered = false;
  if (!c.attempt("synchronize", [&] {
        try {
          b.stream->synchronize();
        } catch (const std::runtime_error& error) {
          if (std::strcmp(error.what(), "mine") != 0) throw;
          delivered = true;
        }
      }))
    return;
  c.require(delivered, "the exception of a host function is lost");
  c.require(ran == 3, "a host function did not run once");
  static_cast<void>(b.check(c));
}

/// Functions that are pending when the runtime is lost never run, but they are destroyed.
void host_functions_queued(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  // never freed: a function may still run after the scenario has ended early
  std::atomic<int>& ran = *new std::atomic<int>{0};
  Gate gate;
  if (!gate.close_on(c, *b.stream)) return;
  for (int i = 0; i < 3; ++i)
    if (!c.attempt("host function", [&] { b.stream->launch_host_func(Callable{&ran}); })) return;
  if (!c.attempt("query", [&] { c.require(!b.stream->query(), "the gate is open"); })) return;
  gate.open();
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  c.require(ran == 3, "a host function did not run once");
  static_cast<void>(b.check(c));
}

void guards(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> other;
  if (!c.attempt("Stream", [&] { other.emplace(); })) return;
  if (!c.attempt("StreamGuard", [&] {
        StreamGuard guard{*other};
        c.require(current_stream() == *other, "the guard is not in effect");
        guard.reset(*b.stream);
        c.require(current_stream() == *b.stream, "reset() did not change the guarded stream");
      }))
    return;
  if (!c.attempt("StreamContext", [&] {
        const StreamContext here;
        const StreamContext::Guard with{here};
      }))
    return;
  if (!c.attempt("synchronize", [&] { synchronize(); })) return;
  static_cast<void>(b.check(c));
}

void guards_on_two_devices(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> here, far;
  if (!c.attempt("Stream", [&] { here.emplace(); })) return;
  if (!c.attempt("Stream", [&] { far.emplace(second); })) return;
  const auto untouched = [&](const char* what, auto&& f) {
    return c.attempt(what, [&] {
      const std::uint64_t of_second = current_stream(second).id();
      const std::uint64_t of_first = current_stream(first).id();
      try {
        f();
      } catch (...) {
        if (c.sound())
          c.require(
              current_stream(first).id() == of_first && current_stream(second).id() == of_second,
              what);
        throw;
      }
      c.require(current_stream(first).id() == of_first && current_stream(second).id() == of_second,
                what);
    });
  };
  if (!untouched("DeviceGuard", [&] {
        const DeviceGuard guard{second};
        c.require(Device::current() == second, "the guard is not in effect");
      }))
    return;
  if (!untouched("StreamGuard", [&] {
        const StreamGuard guard{*far};
        c.require(Device::current() == second, "the guard is not in effect");
      }))
    return;
  if (!untouched("StreamGuard, reset", [&] {
        StreamGuard guard{*here};
        guard.reset(*far);
        c.require(current_stream() == *far, "the guard is not in effect");
        guard.reset(*b.stream);
        c.require(current_stream() == *b.stream, "reset() did not change the guarded stream");
      }))
    return;
  std::optional<StreamContext> there;
  if (!untouched("StreamContext", [&] {
        const StreamGuard guard{*far};
        there.emplace();
      }))
    return;
  if (!untouched("StreamContext::Guard", [&] {
        const StreamContext::Guard with{*there};
        c.require(current_stream() == *far, "the context is not applied");
      }))
    return;
  if (!untouched("use", [&] {
        const StreamGuard restores{*here};
        const StreamGuard also{*far};
        b.stream->use();
        second.default_stream().use();
      }))
    return;
  if (!untouched("Device::use", [&] {
        const DeviceGuard restores{first};
        second.use();
        first.use();
      }))
    return;
  static_cast<void>(b.check(c));
}

void buffers(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> other, shortlived;
  c.keeps_streams(4);  // streams that free memory after other streams have used it
  if (!c.attempt("Stream", [&] { other.emplace(); })) return;
  if (!c.attempt("Stream", [&] { shortlived.emplace(); })) return;
  for (int i = 0; i < 2; ++i) {
    std::optional<DeviceBuffer<int>> one, two;
    std::optional<PinnedBuffer<int>> host;
    if (!c.attempt("PinnedBuffer", [&] { host.emplace(256U); })) return;
    if (!c.attempt("DeviceBuffer", [&] { one.emplace(256U, *other); })) return;
    if (i == 0 && !c.attempt("DeviceBuffer", [&] { two.emplace(256U, *shortlived); })) return;
    if (!c.attempt("fill", [&] { fill(*other, *host, 1); })) return;
    if (!c.attempt("record_stream", [&] { one->record_stream(*b.stream); })) return;
    if (!c.attempt("copy", [&] { copy(*other, *one, *host); })) return;
    if (i == 0) shortlived.reset();  // before its buffer
  }
  if (!c.attempt("synchronize", [&] { other->synchronize(); })) return;
  if (!c.attempt("pointer_info", [&] {
        c.require(pointer_info(b.in->data()).kind == MemoryKind::pinned, "wrong kind");
      }))
    return;
  static_cast<void>(b.check(c));
}

/// What containers do: the buffer is as it was after each failure, so that the call can be
/// repeated. Without pools, resize() and deallocate() free a block once the device is done.
void buffers_changed_of(Checker& c, bool pools) {
  Bystander b;
  if (!pools) c.frees_after_wait();
  if (!b.start(c)) return;
  c.keeps_streams(4);
  std::optional<DeviceBuffer<int>> buffer, copied;
  if (!c.attempt("DeviceBuffer", [&] { buffer.emplace(256U, *b.stream); })) return;
  if (!c.attempt("set", [&] { set(*b.stream, *buffer, 255, 7); })) return;
  if (!c.attempt("resize", [&] { buffer->resize(1024); })) return;
  if (!c.attempt("a copy", [&] { copied.emplace(*buffer, *b.stream); })) return;
  int value = 0;
  if (!c.attempt("get", [&] { value = get(*b.stream, *copied, 255); })) return;
  c.require(value == 7, "the element has another value");
  if (!c.attempt("set_stream", [&] { copied->set_stream(first.default_stream()); })) return;
  DeviceSpan<int> released;
  if (!c.attempt("release", [&] { released = buffer->release(); })) return;
  if (!c.attempt("deallocate", [&] {
        DeviceResource{}.deallocate(*b.stream, released.data(), released.size_bytes());
      }))
    return;
  static_cast<void>(b.check(c));
}

void buffers_changed(Checker& c) { buffers_changed_of(c, true); }
void buffers_without_pools(Checker& c) {
  c.frees_after_wait();
  buffers(c);
}
void buffers_changed_without_pools(Checker& c) { buffers_changed_of(c, false); }

/// A use that is recorded by an address within the block. The block is freed behind it.
void recorded_uses(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  c.keeps_streams(4);
  std::optional<Stream> user;
  std::optional<DeviceBuffer<int>> buffer;
  if (!c.attempt("Stream", [&] { user.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { buffer.emplace(256U, *b.stream); })) return;
  if (!c.attempt("wait_stream", [&] { user->wait_stream(*b.stream); })) return;
  // first, because the scenario ends without the record if it fails
  if (!c.attempt("record_stream", [&] { record_stream(*user, buffer->data() + 100); })) return;
  if (!c.attempt("fill", [&] { fill(*user, *buffer, 1); })) return;
  buffer.reset();
  static_cast<void>(b.check(c));
}

/// A resource of the program's. Never freed: blocks may wait to be given back when a scenario has
/// ended early.
struct CountingResource {
  struct Refused {};
  DeviceResource upstream{first};
  std::atomic<int> blocks{0};
  bool refuses = false;

  void* allocate(StreamRef stream, std::size_t bytes, std::size_t alignment) {
    if (refuses) throw Refused{};
    void* const block = upstream.allocate(stream, bytes, alignment);
    ++blocks;
    return block;
  }
  void deallocate(StreamRef stream, void* pointer, std::size_t bytes, std::size_t alignment) {
    upstream.deallocate(stream, pointer, bytes, alignment);
    --blocks;
  }
  /// Calls `f`, which must throw what this throws.
  template <class F>
  void refuse(Checker& c, F f) {
    refuses = true;
    bool threw = false;
    try {
      f();
    } catch (const Refused&) {
      threw = true;
    } catch (...) {
      refuses = false;
      throw;
    }
    refuses = false;
    c.require(threw, "the resource's exception is lost");
  }
};

/// Buffers of a resource of the program's, which are given back on their own stream, behind another
/// one, and after their stream.
void resources_of(Checker& c, bool pools) {
  Bystander b;
  if (!b.start(c)) return;
  c.keeps_streams(4);
  c.keeps_resource_blocks(3);
  if (!pools) c.frees_after_wait();
  auto& resource = *new CountingResource;
  std::optional<Stream> user, ended;
  std::optional<DeviceBuffer<int>> own, used, last;
  if (!c.attempt("Stream", [&] { user.emplace(); })) return;
  if (!c.attempt("Stream", [&] { ended.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { own.emplace(64U, std::ref(resource), *b.stream); })) return;
  if (!c.attempt("DeviceBuffer", [&] { used.emplace(64U, std::ref(resource), *b.stream); })) return;
  if (!c.attempt("DeviceBuffer", [&] { last.emplace(64U, std::ref(resource), *ended); })) return;
  if (!c.attempt("copy", [&] { copy(*b.stream, *own, *b.between); })) return;
  if (!c.attempt("resize, refused", [&] { resource.refuse(c, [&] { own->resize(128); }); })) return;
  if (!c.attempt("resize", [&] { own->resize(128); })) return;
  if (!c.attempt("copy", [&] { copy(*b.stream, *b.out, own->span().subspan(0, 64)); })) return;
  if (!c.attempt("record_stream", [&] { used->record_stream(*user); })) return;
  if (!c.attempt("fill", [&] { fill(*ended, *last, 1); })) return;
  own.reset();
  used.reset();
  ended.reset();
  last.reset();
  if (!b.check(c)) return;
  if (!c.attempt("synchronize", [&] { first.synchronize(); })) return;
  if (!c.attempt("trim", [&] { DeviceResource{first}.trim(); })) return;  // gives back what waited
  if (!c.faulted()) c.require(resource.blocks == 0, "a block was not given back");
}
void resources(Checker& c) { resources_of(c, true); }
void resources_without_pools(Checker& c) { resources_of(c, false); }

/// With the trace on, which asks for times in the streams. What it is not told leaves a gap in the
/// trace, and nothing else.
void traced(Checker& c) {
  if (!begin(c)) return;
  c.traces();
  if (!c.attempt("Trace::start", [] { static_cast<void>(Trace::start("/dev/null")); })) return;
  Bystander b;
  if (!b.start(c)) return;
  {
    Gate gate;  // so that the trace finds a busy stream
    if (!gate.close_on(c, *b.stream)) return;
    if (!c.attempt("fill", [&] { fill(*b.stream, *b.out, 4); })) return;
    if (!c.attempt("TraceRange", [&] {
          const TraceRange range{*b.stream, "mine"};
          copy(*b.stream, *b.out, *b.between);
        }))
      return;
  }
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  if (!c.attempt("Trace::write", [] { static_cast<void>(Trace::write()); })) return;
  static_cast<void>(b.check(c));
}

void memory_control(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<ManagedBuffer<int>> managed;
  std::optional<DeviceBuffer<int>> box;
  if (!c.attempt("reserved",
                 [&] { c.require(DeviceResource{}.reserved() > 0, "the pool holds nothing"); }))
    return;
  if (!c.attempt("ManagedBuffer", [&] { managed.emplace(64U); })) return;
  if (!c.attempt("advise", [&] { advise(*managed, MemoryAdvice::mostly_read, first); })) return;
  if (!c.attempt("prefetch", [&] { prefetch(*b.stream, *managed, MemoryPlace::host()); })) return;
  if (!c.attempt("DeviceBuffer", [&] { box.emplace(64U, *b.stream); })) return;
  if (!c.attempt("copy_3d", [&] {
        copy_3d(*b.stream, box->data(), {16, 64}, b.in->data(), {16, 64}, {8, 4, 1});
      }))
    return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

/// Two pages, of which the second can only be read.
class HalfReadOnly {
 public:
  HalfReadOnly()
      : all_{mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)} {
    std::memset(all_, 7, 2 * page);
    mprotect(static_cast<char*>(all_) + page, page, PROT_READ);
  }
  [[nodiscard]] std::span<const char> bytes() const {
    return {static_cast<const char*>(all_), 2 * page};
  }

 private:
  static constexpr std::size_t page = 4096;
  void* all_;
};

/// The runtime refuses pages that cannot be written at first. Then the library finds out why, and
/// registers them for reading.
void read_only_registration(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  bool can = false;
  if (!c.attempt("can_pin", [&] { can = first.can_pin_read_only_memory(); }) || !can) return;
  const auto& memory = *new HalfReadOnly;  // never freed, as in copies_staged
  auto& back = *new std::vector<char>(memory.bytes().size());
  {
    std::optional<HostRegistration> pin;
    if (!c.attempt("HostRegistration of read-only pages", [&] { pin.emplace(memory.bytes()); }))
      return;
    std::optional<DeviceBuffer<char>> there;
    if (!c.attempt("DeviceBuffer", [&] { there.emplace(back.size(), *b.stream); })) return;
    if (!c.attempt("copy", [&] { copy(*b.stream, *there, memory.bytes()); })) return;
    if (!c.attempt("copy", [&] { copy(*b.stream, back, *there); })) return;
    if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
    c.require(std::ranges::equal(back, memory.bytes()), "the bytes of the pages");
  }
  static_cast<void>(b.check(c));
}

void native_handles(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> made, wrapped;
  if (!c.attempt("Stream", [&] { made.emplace(); })) return;
  const native::stream handle = made->release();
  made.reset();
  // The caller owns the handle until it is wrapped, also if wrapping fails. So wrap it once more to
  // destroy it.
  const bool done = c.attempt("from_native, take", [&] {
    wrapped.emplace(Stream::from_native(handle, first, Ownership::take));
  });
  if (!done) {
    try {
      wrapped.emplace(Stream::from_native(handle, first, Ownership::take));
    } catch (const std::exception&) {
      std::printf("the handle stays with its caller\n");
      c.keeps_streams(1);
    }
    return;
  }
  std::optional<Stream> view;
  if (!c.attempt("from_native, borrow",
                 [&] { view.emplace(Stream::from_native(handle, Ownership::borrow)); }))
    return;
  if (!c.attempt("host function", [&] { view->launch_host_func(Callable{}); })) return;
  std::optional<Event> event;
  if (!c.attempt("Event", [&] { event.emplace(*view); })) return;
  std::optional<Event> again;
  if (!c.attempt("Event::from_native", [&] {
        again.emplace(Event::from_native(event->native(), first, Ownership::borrow));
      }))
    return;
  if (!c.attempt("wait_event", [&] { b.stream->wait_event(*again); })) return;
  if (!c.attempt("synchronize", [&] { view->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

/// The pool must not hand out a block while a stream may still use it, whatever failed when the
/// block was freed or its stream destroyed.
void pinned_given_back(Checker& c, bool stream_ends) {
  Bystander b;
  if (!b.start(c)) return;
  c.keeps_streams(1);                 // a stream that frees memory after another stream has used it
  constexpr std::size_t size = 4096;  // a size class of its own
  std::optional<Stream> stream;
  std::optional<DeviceBuffer<int>> there;
  std::optional<PinnedBuffer<int>> block;
  std::array<std::optional<PinnedBuffer<int>>, 2> others;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { there.emplace(size, *b.stream); })) return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  if (!c.attempt("PinnedBuffer", [&] { block.emplace(size); })) return;
  std::fill(block->begin(), block->end(), 5);
  Gate gate;
  if (!gate.close_on(c, *stream)) return;
  // The scenario may end early, while the copy is pending.
  if (!c.attempt("record_stream", [&] { there->record_stream(*stream); })) return;
  if (!c.attempt("copy", [&] { copy(*stream, *there, *block); })) return;
  std::optional<Event> end;
  if (!c.attempt("Event", [&] { end.emplace(*stream); })) return;
  if (stream_ends) stream.reset();
  const void* const used = block->data();
  block.reset();
  for (auto& other : others) {
    if (!c.attempt("PinnedBuffer", [&] { other.emplace(size); })) return;
    c.require(other->data() != used,
              "a pinned block is handed out while a stream may still read it");
    std::fill(other->begin(), other->end(), 6);
  }
  if (!c.attempt("PinnedPool::trim", [] { PinnedPool::trim(); })) return;
  gate.open();
  if (!c.attempt("synchronize", [&] { end->synchronize(); })) return;
  if (!c.attempt("copy", [&] { copy(*b.stream, *others[0], *there); })) return;
  if (!c.attempt("synchronize", [&] { b.stream->synchronize(); })) return;
  c.require(
      std::count((*others[0]).begin(), (*others[0]).end(), 5) == static_cast<std::ptrdiff_t>(size),
      "the copy read the bytes of the block's next owner");
  static_cast<void>(b.check(c));
}
void pinned_given_back_first(Checker& c) { pinned_given_back(c, false); }
void pinned_given_back_last(Checker& c) { pinned_given_back(c, true); }

/// Ends the capture of a stream, if a scenario ends early: no device can be waited for until then.
struct CaptureEnd {
  native::stream handle;
  bool is_needed = false;
  ~CaptureEnd() {
    void* graph = nullptr;
    if (is_needed) static_cast<void>(vendor("StreamEndCapture", handle, &graph));
    if (graph != nullptr) static_cast<void>(vendor("GraphDestroy", graph));
  }
};

/// Allocations and queries of the library must not end a capture, even if one of their runtime
/// calls fails.
void captures(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  constexpr std::size_t size = 4096;
  std::optional<Stream> other, captured;
  std::optional<DeviceBuffer<int>> there;
  auto& source = *new std::vector<int>(numbers(large));  // never freed, as in copies_staged
  std::vector<unsigned char> mine(10000);
  if (!c.attempt("Stream", [&] { other.emplace(); })) return;
  if (!c.attempt("Stream", [&] { captured.emplace(); })) return;
  if (!c.attempt("DeviceBuffer", [&] { there.emplace(large, *other); })) return;
  if (!c.attempt("staged copy", [&] { copy(*other, *there, source); })) return;
  if (!c.attempt("synchronize", [&] { other->synchronize(); })) return;
  const native::stream handle = captured->native();
  bool capturing = false;
  CaptureEnd end{handle};
  // the fault may also occur in these direct runtime calls
  for (int i = 0; i < 2 && !capturing; ++i) {
    static_cast<void>(vendor("StreamBeginCapture", handle, 0));
    static_cast<void>(vendor("GetLastError"));
    end.is_needed = true;
    if (!c.attempt("is_capturing", [&] { capturing = captured->is_capturing(); })) return;
  }
  {
    std::optional<PinnedBuffer<int>> block, another;
    std::optional<HostRegistration> pin;
    std::optional<ManagedBuffer<int>> managed;
    if (!c.attempt("PinnedBuffer", [&] { block.emplace(size); })) return;
    if (!c.attempt("copy", [&] { copy(*other, DeviceSpan<int>{there->data(), size}, *block); }))
      return;
    block.reset();
    if (!c.attempt("PinnedBuffer", [&] { another.emplace(size); })) return;
    if (!c.attempt("HostRegistration", [&] { pin.emplace(mine.data(), mine.size()); })) return;
    if (!c.attempt("ManagedBuffer", [&] { managed.emplace(size); })) return;
  }
  if (!c.attempt("Staging::trim", [] { Staging::trim(); })) return;
  if (!c.attempt("PinnedPool::trim", [] { PinnedPool::trim(); })) return;
  if (!c.attempt("is_capturing",
                 [&] { c.require(captured->is_capturing(), "the capture is over"); }))
    return;
  void* graph = nullptr;
  const bool faulted_before = c.faulted();
  end.is_needed = false;
  const int ended = vendor("StreamEndCapture", handle, &graph);
  const bool failed_here = c.faulted() && !faulted_before;
  if (failed_here) static_cast<void>(vendor("StreamEndCapture", handle, &graph));
  if (graph != nullptr) static_cast<void>(vendor("GraphDestroy", graph));
  static_cast<void>(vendor("GetLastError"));
  if (c.sound()) c.require(ended == 0 || failed_here, "the capture is broken");
  if (!c.attempt("synchronize", [&] { captured->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

/// A capture that fails leaves no stream captured, and works when it is repeated.
void graphs(Checker& c) {
  c.keeps_streams(4);  // on which graphs are destroyed that may be under way
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> stream, side;
  std::optional<PinnedBuffer<int>> source, result;
  std::optional<DeviceBuffer<int>> there;
  std::optional<Graph> graph;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  if (!c.attempt("Stream", [&] { side.emplace(); })) return;
  if (!c.attempt("PinnedBuffer", [&] { source.emplace(64U); })) return;
  if (!c.attempt("PinnedBuffer", [&] { result.emplace(64U); })) return;
  if (!c.attempt("DeviceBuffer", [&] { there.emplace(64U, *stream); })) return;
  // a wait for that stream may fail below
  if (!c.attempt("record_stream", [&] { there->record_stream(*side); })) return;
  std::fill(source->begin(), source->end(), 5);
  const auto work = [&] {
    copy(*stream, *there, *source);
    side->wait_stream(*stream);
    side->launch_host_func([alive = Callable{}] {});
    copy(*side, *result, *there);
    stream->wait_stream(*side);
  };
  if (!c.attempt("capture", [&] { graph = capture(*stream, work); })) return;
  if (!c.attempt("is_capturing", [&] {
        c.require(!stream->is_capturing() && !side->is_capturing(), "a stream is captured");
      }))
    return;
  if (!c.attempt("launch", [&] { graph->launch(*stream); })) return;
  if (!c.attempt("launch elsewhere", [&] { graph->launch(*side); })) return;
  if (!c.attempt("synchronize", [&] { side->synchronize(); })) return;
  if (c.sound()) c.require(result->data()[63] == 5, "the graph has not copied");
  if (!c.attempt("update", [&] { static_cast<void>(graph->update(*stream, work)); })) return;
  if (!c.attempt("node_count",
                 [&] { c.require(graph->node_count() == 3, "another number of nodes"); }))
    return;
  if (!c.attempt("dot",
                 [&] { c.require(graph->dot().find("copy") != std::string::npos, "no copy"); }))
    return;
  if (!c.attempt("launch", [&] { graph->launch(*stream); })) return;
  graph.reset();  // perhaps under way
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

/// Nodes of events, changed and disabled nodes, and a graph within a graph.
void graph_nodes(Checker& c) {
  c.keeps_streams(4);
  c.keeps_objects(1);
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> stream;
  std::optional<PinnedBuffer<int>> source, other, result;
  std::optional<DeviceBuffer<int>> there;
  std::optional<Event> event;
  std::optional<Graph> inner, outer;
  if (!c.attempt("Stream", [&] { stream.emplace(); })) return;
  for (auto* const buffer : {&source, &other, &result})
    if (!c.attempt("PinnedBuffer", [&] { buffer->emplace(64U); })) return;
  if (!c.attempt("DeviceBuffer", [&] { there.emplace(64U, *stream); })) return;
  event.emplace(EventOptions{.external = true});
  // its native event stays from now on
  if (!c.attempt("record", [&] { event->record(*stream); })) return;
  std::fill(source->begin(), source->end(), 5);
  std::fill(other->begin(), other->end(), 6);
  const auto work = [&] {
    stream->wait_event(*event);
    copy(*stream, *there, *source);
    stream->launch_host_func([alive = Callable{}] {});
    copy(*stream, *result, *there);
  };
  if (!c.attempt("capture", [&] { inner = capture(*stream, work); })) return;
  const auto from_other = [&] {
    stream->wait_event(*event);
    copy(*stream, *there, *other);
    keep(*stream, Callable{});
    stream->launch_host_func([alive = Callable{}] {});
    copy(*stream, *result, *there);
  };
  if (!c.attempt("launch", [&] { inner->launch(*stream); })) return;
  if (!c.attempt("update", [&] { static_cast<void>(inner->update(*stream, from_other)); })) return;
  const auto nested = [&] {
    inner->launch(*stream);
    event->record(*stream);
  };
  if (!c.attempt("capture", [&] { outer = capture(*stream, nested); })) return;
  if (!c.attempt("is_capturing",
                 [&] { c.require(!stream->is_capturing(), "the stream is captured"); }))
    return;
  if (!c.attempt("launch", [&] { outer->launch(*stream); })) return;
  inner.reset();
  if (!c.attempt("synchronize", [&] { event->synchronize(); })) return;
  if (c.sound())
    c.require(result->data()[63] == 6, "the graph has not copied what it was changed to");
  outer.reset();  // perhaps under way
  event.reset();
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

void bounded_waits(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  Gate gate;
  if (!gate.close_on(c, *b.stream)) return;
  if (!c.attempt("synchronize_for, too short",
                 [&] { c.require(!b.stream->synchronize_for(1ms), "returned early"); }))
    return;
  gate.open();
  if (!c.attempt("synchronize_for",
                 [&] { c.require(b.stream->synchronize_for(patience), "never comes"); }))
    return;
  if (!c.attempt("Device::synchronize", [&] { first.synchronize(); })) return;
  if (!c.attempt("Device::synchronize_for",
                 [&] { c.require(first.synchronize_for(patience), "never comes"); }))
    return;
  static_cast<void>(b.check(c));
}

/// What was submitted is told, whatever fails afterwards. Its destructor waits for that.
class Told {
 public:
  explicit Told(Checker& c) : checker_{c} {}
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  ~Told() {
    checker_.require(eventually([&] { return *told_ == submitted_; }),
                     "a completion function was not called once");
  }
  template <class Source>
  bool submit(const char* what, const Source& source) {
    return checker_.attempt(what, [&] {
      source.on_complete([told = told_, alive = Callable{}](const Outcome&) { ++*told; });
      ++submitted_;
    });
  }

 private:
  Checker& checker_;
  int submitted_ = 0;
  // never freed: a function may be called after the scenario has given up
  std::atomic<int>* told_ = new std::atomic<int>{0};
};

void completions(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Event> event;
  std::optional<Future> future;
  c.watches();
  Told told{c};
  Gate gate;
  if (!gate.close_on(c, *b.stream)) return;
  if (!told.submit("on_complete", *b.stream)) return;
  if (!c.attempt("record_event", [&] { event.emplace(*b.stream); })) return;
  if (!told.submit("Event::on_complete", *event)) return;
  if (!c.attempt("record again", [&] { event->record(*b.stream); })) return;
  if (!c.attempt("future", [&] { future = b.stream->future(); })) return;
  gate.open();
  c.require(future->wait_for(patience), "the future is never ready");
  if (c.sound())
    c.require(future->outcome().is_ok(), "the future has an error although the work is complete");
  static_cast<void>(b.check(c));
}

void values(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> waits;
  std::optional<PinnedBuffer<std::uint32_t>> numbers;
  if (!c.attempt("Stream", [&] { waits.emplace(); })) return;
  if (!c.attempt("PinnedBuffer", [&] { numbers.emplace(2U); })) return;
  bool supported = false;
  if (!c.attempt("has_stream_memory_operations",
                 [&] { supported = first.has_stream_memory_operations(); }))
    return;
  if (!supported) return static_cast<void>(b.check(c));
  (*numbers)[0] = (*numbers)[1] = 0;
  if (!c.attempt("write_value", [&] { b.stream->write_value(numbers->data(), 1); })) return;
  if (!c.attempt("wait_value", [&] { waits->wait_value(numbers->data(), 1); })) return;
  if (!c.attempt("write_value behind", [&] { waits->write_value(numbers->data() + 1, 2); })) return;
  if (!c.attempt("synchronize", [&] { waits->synchronize(); })) return;
  c.require((*numbers)[1] == 2, "the value was not written");
  static_cast<void>(b.check(c));
}

/// What one process does to share. The fault sweep has one process only.
void sharing(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<SharedBuffer<int>> memory;
  Event event{EventOptions{.interprocess = true}};
  if (!c.attempt("SharedBuffer", [&] { memory.emplace(64U, second); })) return;
  if (!c.attempt("SharedBuffer::ipc_handle", [&] { static_cast<void>(memory->ipc_handle()); }))
    return;
  memory.reset();
  if (!c.attempt("Event::ipc_handle", [&] { static_cast<void>(event.ipc_handle()); })) return;
  if (!c.attempt("record", [&] { event.record(*b.stream); })) return;
  if (!c.attempt("wait_event", [&] { b.stream->wait_event(event); })) return;
  std::optional<Stream> far;
  if (!c.attempt("Stream", [&] { far.emplace(second); })) return;
  if (!c.attempt("wait_event from another device", [&] { far->wait_event(event); })) return;
  if (!c.attempt("synchronize", [&] { far->synchronize(); })) return;
  if (!c.attempt("synchronize", [&] { event.synchronize(); })) return;
  if (!c.attempt("query", [&] { static_cast<void>(event.query()); })) return;
  static_cast<void>(b.check(c));
}

void views(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<StreamRef> view, thread_default;
  if (!c.attempt("StreamRef::from_native",
                 [&] { view = StreamRef::from_native(b.stream->native(), first); }))
    return;
  if (!c.attempt("the same, without a device", [&] {
        c.require(StreamRef::from_native(b.stream->native()) == *view, "another");
      }))
    return;
  c.require(*view == *b.stream, "the view is another stream");
  if (!c.attempt("per_thread_default", [&] {
        thread_default = StreamRef::from_native(reinterpret_cast<native::stream>(2), second);
      }))
    return;
  if (!c.attempt("synchronize", [&] { thread_default->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

void parts(Checker& c) {
  Bystander b;
  if (!b.start(c)) return;
  bool supported = false;
  if (!c.attempt("has_partitions", [&] { supported = second.has_partitions(); })) return;
  if (!supported) return static_cast<void>(b.check(c));
  std::array<Partition, 2> made;
  std::optional<Stream> stream;
  if (!c.attempt("partition", [&] { made = partition(second, 3); })) return;
  if (!c.attempt("partition again",
                 [&] { c.require(partition(second, 3) == made, "other parts"); }))
    return;
  if (!c.attempt("Stream", [&] { stream.emplace(second, StreamOptions{.partition = made[0]}); }))
    return;
  if (!c.attempt("multiprocessors", [&] { c.require(stream->multiprocessors() >= 3, "too few"); }))
    return;
  if (!c.attempt("wait_stream", [&] { stream->wait_stream(*b.stream); })) return;
  if (!c.attempt("host function", [&] { stream->launch_host_func(Callable{}); })) return;
  if (!c.attempt("synchronize", [&] { stream->synchronize(); })) return;
  static_cast<void>(b.check(c));
}

/// What devices made of threads do not have.
void hardware_properties(Checker& c) {
  if (!c.attempt("compute_capability",
                 [&] { c.require(second.compute_capability().major > 0, "none"); }))
    return;
  if (!c.attempt("from_pci_bus_id", [&] {
        c.require(Device::from_pci_bus_id(second.pci_bus_id()) == second, "another device");
      }))
    return;
  if (!c.attempt("set_host_wait", [&] { second.set_host_wait(HostWait::block); })) return;
  static_cast<void>(c.attempt(
      "host_wait", [&] { c.require(second.host_wait() == HostWait::block, "another way"); }));
}

void device_properties(Checker& c) {
  if (!begin(c)) return;
  if (!c.attempt("count", [&] { static_cast<void>(Device::count()); })) return;
  if (!c.attempt("name", [&] { c.require(!second.name().empty(), "no name"); })) return;
  if (!c.attempt("memory_info", [&] { c.require(second.memory_info().total > 0, "no memory"); }))
    return;
  if (!c.attempt("priority_range", [&] { static_cast<void>(second.priority_range()); })) return;
  if (!c.attempt("multiprocessor_count",
                 [&] { c.require(second.multiprocessor_count() > 0, "none"); }))
    return;
  if (!c.attempt("has_memory_pools", [&] { c.require(second.has_memory_pools(), "none"); })) return;
  if (!c.attempt("has_stream_memory_operations",
                 [&] { static_cast<void>(second.has_stream_memory_operations()); }))
    return;
  if (!c.attempt("from_uuid",
                 [&] { c.require(Device::from_uuid(second.uuid()) == second, "another device"); }))
    return;
  if (!c.attempt("can_access_peer", [&] { c.require(first.can_access_peer(second), "cannot"); }))
    return;
  if (!c.attempt("enable_peer_access", [&] { second.enable_peer_access(first); })) return;
  if (!c.attempt("enable_peer_access again", [&] { second.enable_peer_access(first); })) return;
  if (!c.attempt("disable_peer_access", [&] { second.disable_peer_access(first); })) return;
  if (!c.attempt("synchronize", [&] { second.synchronize(); })) return;
  if (!c.attempt("current", [&] { c.require(Device::current() == first, "another device"); }))
    return;
  if (std::strcmp(RUNNEL_BACKEND, "host") != 0) hardware_properties(c);
}

void two_devices(Checker& c) {
  c.keeps_streams(4);
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Stream> far;
  std::optional<DeviceBuffer<int>> there;
  auto& out = *new std::vector<int>(64);  // never freed, as in copies_staged
  if (!c.attempt("Stream", [&] { far.emplace(second); })) return;
  if (!c.attempt("DeviceBuffer", [&] { there.emplace(64U, *far); })) return;
  if (!c.attempt("wait_stream", [&] { far->wait_stream(*b.stream); })) return;
  // the wait behind the copies may fail
  if (!c.attempt("record_stream", [&] { b.between->record_stream(*far); })) return;
  if (!c.attempt("copy across", [&] { copy(*far, *there, *b.between); })) return;
  if (!c.attempt("copy out", [&] { copy(*far, out, *there); })) return;
  if (!c.attempt("wait_stream", [&] { b.stream->wait_stream(*far); })) return;
  if (!c.attempt("synchronize", [&] { far->synchronize(); })) return;
  c.require(std::equal(out.begin(), out.end(), b.in->begin()), "wrong bytes");
  static_cast<void>(b.check(c));
}

/// Input and output of overlap(). If run() throws, nothing may be written to the output afterwards.
template <class Memory>
struct Overlapped {
  Memory in, out, abandoned;

  explicit Overlapped(std::size_t size) : in(size), out(size), abandoned(size) {
    std::iota(in.begin(), in.end(), 1);
    std::fill(abandoned.begin(), abandoned.end(), -1);
  }
  void run(const OverlapOptions& options) try {
    overlap(in, out, options, [](StreamRef stream, DeviceSpan<const int> x, DeviceSpan<int> y) {
      copy(stream, y, x);
    });
  } catch (...) {
    std::swap(out, abandoned);
    std::fill(abandoned.begin(), abandoned.end(), -1);
    throw;
  }
  void check_abandoned(Checker& c) const {
    c.require(std::count(abandoned.begin(), abandoned.end(), -1) == std::ssize(abandoned),
              "work was in flight after the exception");
  }
  void check(Checker& c) const {
    c.require(std::equal(in.begin(), in.end(), out.begin()), "wrong bytes");
    check_abandoned(c);
  }
};

/// Calls overlap() twice. The second call uses the streams that the first call left.
template <class Memory>
void overlaps(Checker& c, const OverlapOptions& options, std::size_t size) {
  Bystander b;
  if (!b.start(c)) return;
  std::optional<Overlapped<Memory>> first_time, second_time;
  if (!c.attempt("PinnedBuffer", [&] { first_time.emplace(size); })) return;
  if (!c.attempt("PinnedBuffer", [&] { second_time.emplace(size); })) return;
  const bool done = c.attempt("overlap", [&] { first_time->run(options); }) &&
                    c.attempt("overlap again", [&] { second_time->run(options); });
  const bool still = b.check(c);
  if (done && still) {
    first_time->check(c);
    second_time->check(c);
  }
  // If the runtime is lost, pending work cannot be waited for. The library's threads leave pageable
  // memory alone all the same.
  if (c.sound() || !std::is_same_v<Memory, std::vector<int>>) return;
  std::this_thread::sleep_for(std::chrono::milliseconds{5});
  first_time->check_abandoned(c);
  second_time->check_abandoned(c);
  static_cast<void>(new std::optional{std::move(first_time)});
  static_cast<void>(new std::optional{std::move(second_time)});
}
void overlap_a(Checker& c) {
  c.keeps_streams(2);
  overlaps<std::vector<int>>(
      c, {.chunk = 200'000, .in_flight = 2, .strategy = OverlapStrategy::stream_per_chunk},
      500'000);
}
void overlap_b(Checker& c) {
  c.keeps_streams(3);
  overlaps<PinnedBuffer<int>>(c,
                              {.chunk = 100,
                               .in_flight = 2,
                               .strategy = OverlapStrategy::copy_compute_copy,
                               .record_times = true},
                              301);
}
/// The first copy is enqueued while the buffers are allocated.
void overlap_untimed(Checker& c) {
  c.keeps_streams(2);
  overlaps<PinnedBuffer<int>>(
      c, {.chunk = 100, .in_flight = 2, .strategy = OverlapStrategy::stream_per_chunk}, 301);
}

/// From a source through a filter to a sink. The function throws at a chunk in the middle, while
/// other chunks are in flight.
void overlap_streamed(Checker& c) {
  c.keeps_streams(3);
  Bystander b;
  if (!b.start(c)) return;
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  std::optional<PinnedBuffer<std::size_t>> kept;
  if (!c.attempt("PinnedBuffer", [&] { kept.emplace(1U); })) return;
  (*kept)[0] = 7;
  for (const std::size_t bad : {std::size_t{2}, std::size_t{1000}}) {
    std::vector<int> out;
    bool threw = false;
    const bool done =
        c.attempt(bad == 2 ? "overlap, the function fails" : "overlap, streamed", [&] {
          out.clear();
          threw = false;
          int next = 0;
          const auto read = [&](std::span<int> to) {
            const std::size_t count = std::min(to.size(), static_cast<std::size_t>(350 - next));
            for (int& number : to.first(count)) number = ++next;
            return count;
          };
          const auto write = [&](std::span<const int> numbers) {
            out.insert(out.end(), numbers.begin(), numbers.end());
          };
          try {
            overlap(from_source<int>(read), filtered(to_sink<int>(write)),
                    {.chunk = 100, .in_flight = 3, .strategy = OverlapStrategy::copy_compute_copy},
                    [&](StreamRef stream, DeviceSpan<const int> x, DeviceSpan<int> y,
                        DeviceSpan<std::size_t> count, const OverlapChunk& chunk) {
                      copy(stream, y, x);
                      copy(stream, count, *kept);
                      if (chunk.index == bad) throw Mine{"mine"};
                    });
          } catch (const OverlapError& error) {
            try {
              std::rethrow_if_nested(error);
            } catch (const Mine&) {
              c.require(error.chunk() == bad, "the wrong chunk is named");
              threw = true;
              return;
            } catch (...) {
            }
            throw;
          }
        });
    if (!done) return;
    c.require(threw == (bad == 2), "the function's exception is lost");
    const std::size_t chunks = threw ? bad : 4;
    c.require(out.size() == chunks * 7 && out[7] == 101, "wrong numbers");
  }
  static_cast<void>(b.check(c));
}

struct Scenario {
  const char* name;
  void (*run)(Checker&);
  const char* environment = "";
  bool calls_runtime = false;  // calls functions of the vendor's runtime
};
#ifdef SWEEP_MPI
// Open MPI begins in a third of the time if it looks for no other processes and no network. Without
// folders of their own, many may run at a time.
constexpr const char* mpi_alone =
    "OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self "
    "OMPI_MCA_orte_create_session_dirs=0";
#endif
constexpr Scenario scenarios[] = {
    {"streams", streams},
    {"wait_stream", wait_stream},
    {"wait_default_streams", wait_default_streams, "STANDIN_DEVICES=2"},
    {"events", events},
    {"timed_events", timed_events},
    {"event_options", event_options},
    {"event_moves_between_devices", event_moves_between_devices, "STANDIN_DEVICES=2"},
    {"pool", pool},
    {"copies_pinned", copies_pinned},
    {"copies_small", copies_small},
    {"copies_staged_idle", copies_staged_idle},
    {"copies_staged_busy", copies_staged_busy},
    {"copies_staged_short", copies_staged_short},
    {"copies_staged_by_host_functions", copies_staged_by_host_functions,
     "STANDIN_MEMORY_OPERATIONS=0"},
    {"row_to_device_small", row_to_device_small},
    {"row_to_device_large", row_to_device_large},
    {"row_to_host_small", row_to_host_small},
    {"row_to_host_large", row_to_host_large},
    {"lists_staged", lists_staged},
    {"lists_by_host_functions", lists_by_host_functions, "STANDIN_MEMORY_OPERATIONS=0"},
    {"copies_2d", copies_2d},
    {"fills", fills},
    {"host_functions", host_functions},
    {"host_functions_queued", host_functions_queued},
    {"guards", guards},
    {"guards_on_two_devices", guards_on_two_devices, "STANDIN_DEVICES=2"},
    {"buffers", buffers},
    {"buffers_without_pools", buffers_without_pools, "STANDIN_POOLS=0"},
    {"buffers_changed", buffers_changed},
    {"buffers_changed_without_pools", buffers_changed_without_pools, "STANDIN_POOLS=0"},
    {"recorded_uses", recorded_uses},
    {"resources", resources},
    {"resources_without_pools", resources_without_pools, "STANDIN_POOLS=0"},
    {"traced", traced},
    {"memory_control", memory_control},
    {"read_only_registration", read_only_registration},
    {"native_handles", native_handles},
    {"pinned_given_back_first", pinned_given_back_first},
    {"pinned_given_back_last", pinned_given_back_last},
    {"captures", captures, "", true},
    {"graphs", graphs},
    {"graph_nodes", graph_nodes},
    {"bounded_waits", bounded_waits},
    {"values", values},
    {"sharing", sharing, "STANDIN_DEVICES=2"},
    {"views", views, "STANDIN_DEVICES=2"},
    {"parts", parts, "STANDIN_DEVICES=2"},
    {"completions", completions},
#ifdef SWEEP_SENDERS
    {"senders", senders},
#endif
#ifdef SWEEP_MPI
    {"mpi_operations", mpi_operations, mpi_alone},
#endif
#ifdef SWEEP_CCL
    {"ccl_operations", ccl_operations},
    {"ccl_captured", ccl_captured},
    {"ccl_devices", ccl_devices, "STANDIN_DEVICES=2"},
    {"ccl_verbs", ccl_verbs, "STANDIN_DEVICES=2 SWEEP_ONLY=collectives"},
    {"ccl_parts", ccl_parts, "STANDIN_DEVICES=2 SWEEP_ONLY=collectives"},
    {"ccl_timeout", ccl_timeout, "STANDIN_DEVICES=2 SWEEP_ONLY=collectives"},
    {"ccl_error", ccl_error, "STANDIN_CCL_FAULT=operation=2;code=6"},
#endif
    {"device_properties", device_properties, "STANDIN_DEVICES=2"},
    {"two_devices", two_devices, "STANDIN_DEVICES=2"},
    {"overlap_a", overlap_a},
    {"overlap_b", overlap_b},
    {"overlap_untimed", overlap_untimed},
    {"overlap_streamed", overlap_streamed},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Scenario& scenario : scenarios)
      if (!scenario.calls_runtime || std::strcmp(RUNNEL_BACKEND, "host") != 0)
        std::printf("%s %s\n", scenario.name, scenario.environment);
    return 0;
  }
  for (const Scenario& scenario : scenarios) {
    if (std::strcmp(argv[1], scenario.name) != 0) continue;
    exhaustion::begin();
    Checker checker;
    scenario.run(checker);
    exhaustion::recover();
    checker.finish();
    return checker.report(scenario.name);
  }
  std::fprintf(stderr, "usage: sweep_scenarios [scenario]\n");
  return 2;
}
