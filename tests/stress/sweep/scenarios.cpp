// SPDX-License-Identifier: Apache-2.0
/// Short programs over the public API for the fault sweep. `sweep_scenarios` lists them with the
/// environment that each one needs. With a name it runs one scenario, checks the invariants and
/// prints a summary. Destructors run outside of attempts, because they must not throw.
#include <sys/mman.h>

#include <array>
#include <numeric>
#include <runnel/trace.hpp>
#include <span>
#include <stdexcept>
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
using Ints = std::vector<int>;
using DeviceInts = DeviceBuffer<int>;
using PinnedInts = PinnedBuffer<int>;

constexpr Device first{0};
constexpr Device second{1};

/// Sets the thread's current stream. After that, snapshots make no runtime call.
void begin(Checker& c) { ATTEMPT(current_stream()); }

/// Whether each number is this one.
bool has_only(const auto& all, const auto& number) {
  return std::ranges::count(all, number) == std::ranges::ssize(all);
}

void count_up(auto& all, int from) { std::iota(all.begin(), all.end(), from); }

Ints numbers(size_t n, int from = 1) {
  Ints v(n);
  count_up(v, from);
  return v;
}

/// Work that is enqueued before the fault. It must complete with the right bytes, and its objects
/// must stay usable.
struct Bystander {
  Checker& c;
  std::optional<Stream> stream;
  std::optional<PinnedInts> in, out;
  std::optional<DeviceInts> between;
  // never freed: a function may still run after the scenario has ended early
  std::atomic_int& ran = *new std::atomic_int{0};

  explicit Bystander(Checker& checker) : c{checker} {
    begin(c);
    c.make("bystander: Stream", stream);
    c.make("bystander: PinnedBuffer", in, 64U);
    c.make("bystander: PinnedBuffer", out, 64U);
    c.make("bystander: DeviceBuffer", between, 64U, *stream);
    count_up(*in, 7);
    std::ranges::fill(*out, 0);
    ATTEMPT(copy(*stream, *between, *in));
    ATTEMPT(copy(*stream, *out, *between));
    ATTEMPT(stream->launch_host_func(Callable{&ran}));
  }
  void check() {
    ATTEMPT(stream->synchronize());
    c.require(std::ranges::equal(*in, *out), "work enqueued before the fault did not arrive");
    c.require(ran == 1, "a host function enqueued before the fault did not run once");
    c.attempt("bystander: use again", [&] {
      fill(*stream, *out, 3);
      stream->synchronize();
    });
    c.require(has_only(*out, 3), "a later fill did not arrive");
  }
};

void streams(Checker& c) {
  begin(c);
  std::optional<Stream> urgent, blocking;
  MAKE(Stream, plain);
  ATTEMPT(urgent.emplace(StreamOptions{.priority = Priority::high, .name = "urgent"}));
  ATTEMPT(blocking.emplace(first, StreamOptions{.blocking = true}));
  REQUIRE(urgent->priority() <= plain->priority(), "the priority is lost");
  c.require(blocking->is_blocking() && !plain->is_blocking(), "blocking is not what was asked for");
  Stream moved{std::move(*plain)};
  c.synchronize(moved);
  ATTEMPT(moved.query());
  *urgent = std::move(moved);
  c.synchronize(*urgent);
}

void wait_stream(Checker& c) {
  c.kept_streams = 4;
  Bystander b{c};
  MAKE(Stream, other);
  MAKE(PinnedInts, result, 64U);
  Gate gate{c, *b.stream};
  ATTEMPT(fill(*b.stream, *b.between, 9));
  ATTEMPT(other->wait_stream(*b.stream));
  // synchronize() may fail
  ATTEMPT(b.between->record_stream(*other));
  ATTEMPT(copy(*other, *result, *b.between));
  gate.open();
  c.synchronize(*other);
  c.require(has_only(*result, 9), "the copy did not wait");
  b.check();
}

void wait_default_streams(Checker& c) {
  Bystander b{c};
  std::optional<StreamRef> far, near;
  c.kept_events = 2;
  ATTEMPT(far = second.default_stream());
  ATTEMPT(near = first.default_stream());
  ATTEMPT(far->wait_stream(*b.stream));
  ATTEMPT(near->wait_stream(*far));
  ATTEMPT(b.stream->wait_stream(*near));
  ATTEMPT(far->query());
  c.synchronize(*far);
  ATTEMPT(StreamRef::per_thread_default(first).synchronize());
  b.check();
}

void events(Checker& c) {
  Bystander b{c};
  MAKE(Stream, other);
  Event event;
  Gate gate{c, *other};
  MAKE(Event, made, *other);
  // If recording again fails, the event keeps its previous record.
  c.attempt("record again", [&] {
    try {
      made->record(*other);
    } catch (...) {
      if (c.sound()) c.require(!made->query(), "a failed record lost the previous record");
      throw;
    }
  });
  ATTEMPT(event.record(*other));
  REQUIRE(!made->query(), "an event behind a gate is complete");
  ATTEMPT(b.stream->wait_event(event));
  gate.open();
  c.synchronize(event);
  REQUIRE(made->synchronize_for(patience), "the event never comes");
  b.check();
}

void timed_events(Checker& c) {
  Bystander b{c};
  MAKE(TimedEvent, start, *b.stream);
  ATTEMPT(b.stream->launch_host_func(Callable{}));
  MAKE(TimedEvent, stop, *b.stream);
  c.synchronize(*stop);
  // 600 from the difference itself correctly means "not ready".
  REQUIRE(*stop - *start >= 0ns, "time runs backwards");
  b.check();
}

void event_options(Checker& c) {
  begin(c);
  MAKE(Stream, stream);
  Event patient{EventOptions{.blocking_wait = true}};
  Event shared{EventOptions{.interprocess = true}};
  // The first record makes the native event. If it fails, the event is not counted unless it
  // exists.
  ATTEMPT(patient.record(*stream));
  ATTEMPT(shared.record(*stream));
  c.synchronize(patient);
  c.synchronize(shared);
  patient = Event{};
}

void event_moves_between_devices(Checker& c) {
  Bystander b{c};
  MAKE(Stream, far, second);
  Gate gate{c, *b.stream};
  Event event;
  ATTEMPT(event.record(*b.stream));
  c.attempt("record there", [&] {
    try {
      event.record(*far);
    } catch (...) {
      if (c.sound())
        c.require(!event.query() && event.device() == first,
                  "a failed record lost the previous record");
      throw;
    }
  });
  c.require(event.device() == second, "the event is on the wrong device");
  c.synchronize(event);
  gate.open();
  b.check();
}

void pool(Checker& c) {
  Bystander b{c};
  MAKE(StreamPool, pool, first, StreamPoolOptions{.size = 2, .max = 4});
  std::array<std::optional<StreamLease>, 4> leases;
  for (auto& lease : leases) ATTEMPT(lease.emplace(pool->acquire()));
  c.require(pool->leased() == 4 && pool->size() == 4 && pool->growth() == 2,
            "the pool counts wrongly");
  ATTEMPT(leases[0]->wait_stream(*b.stream));
  ATTEMPT(leases[0]->launch_host_func(Callable{}));
  leases[1].reset();
  ATTEMPT(leases[1].emplace(pool->acquire()));
  pool.reset();
  ATTEMPT(leases[0]->synchronize());
  b.check();
}

void copies_pinned(Checker& c) {
  Bystander b{c};
  MAKE(PinnedInts, in, 4096U);
  MAKE(PinnedInts, out, 4096U);
  MAKE(DeviceInts, one, 4096U, *b.stream);
  MAKE(DeviceInts, two, 4096U, *b.stream);
  count_up(*in, 1);
  ATTEMPT(copy_bytes(*b.stream, one->data(), in->data(), in->size_bytes()));
  ATTEMPT(copy(*b.stream, *two, *one));
  ATTEMPT(copy(*b.stream, *out, *two, {Pageable::block}));
  ATTEMPT(copy_bytes(*b.stream, out->data(), in->data(), 64));
  c.synchronize(*b.stream);
  c.require(std::ranges::equal(*in, *out), "wrong bytes");
  in.reset();
  // The stream used the block, so the pool hands it out again only once the stream is done.
  c.make("PinnedBuffer again", in, 4096U);
  b.check();
}

void copies_small(Checker& c) {
  c.copies_through_pool = true;
  Bystander b{c};
  const auto& in = *new Ints(numbers(1000));  // never freed, as in copies_staged
  auto& out = *new Ints(1000);
  MAKE(DeviceInts, on_device, 1000U, *b.stream);
  c.synchronize(*b.stream);
  ATTEMPT(copy(*b.stream, *on_device, in));
  ATTEMPT(copy(*b.stream, out, *on_device));
  ATTEMPT(copy(*b.stream, out, *on_device, {Pageable::block}));
  ATTEMPT(copy(*b.stream, std::span{out}.first(10), std::span{in}.first(10)));
  c.synchronize(*b.stream);
  c.require(in == out, "wrong bytes");
  b.check();
}

/// A copy that needs more pieces than a ring has slots.
constexpr size_t large = (size_t{5} << 20) / sizeof(int);

/// After synchronize() has reported a lost device, no thread of the library writes to the memory
/// any more. (A host function that is being called goes on.)
void require_untouched(Checker& c, std::vector<Ints>& memory) {
  if (!c.told_lost() || std::getenv("STANDIN_MEMORY_OPERATIONS") != nullptr) return;
  for (Ints& each : memory) std::ranges::fill(each, -1);
  std::this_thread::sleep_for(5ms);
  for (const Ints& each : memory) c.require(has_only(each, -1), "a worker wrote to memory");
}

/// A copy that throws no longer uses the caller's memory, so the caller may free the memory at
/// once.
template <bool busy, size_t size = large>
void copies_staged(Checker& c) {
  Bystander b{c};
  MAKE(Stream, stream);
  MAKE(DeviceInts, on_device, size, *stream);
  if (!busy) c.synchronize(*stream);
  // The memory of the copies that succeeded. Never freed, because pending copies cannot be waited
  // for if the runtime is lost.
  auto& in = *new std::vector<Ints>;
  auto& out = *new std::vector<Ints>;
  for (int i : range(2)) {
    Gate gate;
    if (busy) gate.close_on(c, *stream);
    c.attempt("staged copy in", [&] {
      Ints source = numbers(size, i);
      copy(*stream, *on_device, source);
      in.push_back(std::move(source));
    });
    c.attempt("staged copy out", [&] {
      Ints target(size, -1);
      copy(*stream, target, *on_device);
      out.push_back(std::move(target));
    });
    gate.open();
  }
  if (!c.has_synchronized(*stream)) {
    require_untouched(c, out);
    return;
  }
  for (size_t i : range(in.size())) c.require(in[i] == out[i], "wrong bytes");
  b.check();
}

/// Memory of the copies that succeeded, and of those that threw. Never freed, as in copies_staged.
struct RowMemory {
  std::vector<Ints> used, given_up;
  /// Calls `f(memory)`. After an exception the memory is the caller's again.
  template <class F>
  void with(Ints memory, F&& f) {
    try {
      f(memory);
    } catch (...) {
      std::ranges::fill(memory, -1);
      given_up.push_back(std::move(memory));
      throw;
    }
    used.push_back(std::move(memory));
  }
  void check_given_up(Checker& c) const {
    for (const Ints& each : given_up)
      c.require(has_only(each, -1), "a copy that threw has written to memory afterwards");
  }
};

/// Copies of `size` numbers in a row. To the device, the later ones are filled while the earlier
/// ones travel.
template <bool to_device, size_t count, size_t size>
void row(Checker& c) {
  if (size <= 10'000) c.copies_through_pool = true;
  Bystander b{c};
  MAKE(Stream, stream);
  MAKE(DeviceInts, on_device, count * size, *stream);
  MAKE(PinnedInts, pinned, count * size);
  if constexpr (to_device) {
    c.synchronize(*stream);
  } else {
    count_up(*pinned, 0);
    ATTEMPT(copy(*stream, *on_device, *pinned));
  }
  auto& memory = *new RowMemory;
  for (size_t i : range(count)) {
    const auto there = on_device->span().subspan(i * size, size);
    if constexpr (to_device)
      ATTEMPT(memory.with(numbers(size, static_cast<int>(i)),
                          [&](const Ints& source) { copy(*stream, there, source); }));
    else
      ATTEMPT(memory.with(Ints(size, -1), [&](Ints& target) { copy(*stream, target, there); }));
  }
  if constexpr (to_device) ATTEMPT(copy(*stream, *pinned, *on_device));
  if (!c.has_synchronized(*stream)) {
    if (!to_device) require_untouched(c, memory.used);
    return;
  }
  for (size_t i : range(count))
    c.require(std::ranges::equal(memory.used[i], std::span{*pinned}.subspan(i * size, size)),
              "wrong bytes");
  memory.check_given_up(c);
  b.check();
}

/// Lists of blocks in shuffled order: all of them to the device, all of them to the host, and both
/// in one list beside pinned memory.
void lists(Checker& c) {
  constexpr size_t blocks = 12, size = 15'000, all = blocks * size;
  Bystander b{c};
  MAKE(Stream, stream);
  MAKE(DeviceInts, one, all, *stream);
  MAKE(DeviceInts, two, all, *stream);
  MAKE(PinnedInts, pinned, 2 * size);
  const auto list = [&](int* to, const int* from) {
    std::vector<CopyOperation> operations;
    for (size_t i : range(blocks)) {
      const size_t at = i * 5 % blocks * size;
      operations.push_back({to + at, from + at, size * sizeof(int)});
    }
    return operations;
  };
  auto& sources = *new RowMemory;
  auto& targets = *new RowMemory;
  ATTEMPT(sources.with(numbers(all), [&](const Ints& source) {
    copy_batch(*stream, list(one->data(), source.data()));
  }));
  ATTEMPT(targets.with(
      Ints(all, -1), [&](Ints& target) { copy_batch(*stream, list(target.data(), one->data())); }));
  // After an exception other operations of a list may have been enqueued.
  auto& in = *new Ints(numbers(all, 5));
  auto& out = *new Ints(all, -1);
  c.attempt("list in both directions", [&] {
    std::vector<CopyOperation> operations = list(two->data(), in.data());
    for (const CopyOperation& each : list(out.data(), one->data())) operations.push_back(each);
    for (const size_t i : {size_t{0}, size_t{1}})
      operations.push_back({pinned->data() + i * size, one->data() + i * size, size * sizeof(int)});
    copy_batch(*stream, operations);
  });
  auto& back = *new Ints(all, -1);
  ATTEMPT(copy_batch(*stream, list(back.data(), two->data())));
  if (!c.has_synchronized(*stream)) {
    require_untouched(c, targets.used);
    return;
  }
  c.require(targets.used.front() == numbers(all) && out == numbers(all) && back == in,
            "wrong bytes");
  c.require(std::equal(pinned->begin(), pinned->end(), out.begin()),
            "wrong bytes in pinned memory");
  targets.check_given_up(c);
  b.check();
}

void copies_2d(Checker& c) {
  c.copies_through_pool = true;
  Bystander b{c};
  constexpr size_t width = 300, height = 400, pitch = 512;
  auto& in = *new std::vector<unsigned char>(pitch * height);  // never freed, as in copies_staged
  auto& out = *new std::vector<unsigned char>(pitch * height);
  for (size_t i : range(in.size())) in[i] = static_cast<unsigned char>(i * 7);
  MAKE(DeviceBuffer<unsigned char>, one, pitch * height, *b.stream);
  MAKE(DeviceBuffer<unsigned char>, two, pitch * height, *b.stream);
  ATTEMPT(copy_2d(*b.stream, one->data(), width, in.data(), pitch, width, height));
  ATTEMPT(copy_2d(*b.stream, two->data(), pitch, one->data(), width, width, height));
  ATTEMPT(copy_2d(*b.stream, out.data(), pitch, two->data(), pitch, width, height));
  c.synchronize(*b.stream);
  for (size_t row : range(height))
    if (std::memcmp(&in[row * pitch], &out[row * pitch], width) != 0)
      return c.violation("wrong bytes in row %zu", row);
  b.check();
}

struct Wide {
  int a, b, c;
  bool operator==(const Wide&) const = default;
};

void fills(Checker& c) {
  Bystander b{c};
  // Never freed: a broken runtime may still call functions that fill this memory, and the scenario
  // cannot wait for them.
  auto& ordinary = *new Ints(100);
  auto& ordinary_wide = *new std::vector<Wide>(100);
  MAKE(DeviceBuffer<Wide>, wide, 1000U, *b.stream);
  MAKE(DeviceBuffer<short>, two, 1000U, *b.stream);
  MAKE(PinnedBuffer<Wide>, wide_out, 1000U);
  MAKE(PinnedBuffer<short>, two_out, 1000U);
  c.attempt("fill, 12 bytes", [&] { fill(*b.stream, *wide, Wide{1, 2, 3}); });
  ATTEMPT(fill(*b.stream, *two, short{0x0102}));
  ATTEMPT(fill(*b.stream, DeviceSpan<int>{reinterpret_cast<int*>(two->data()), 2}, 0x01020304));
  ATTEMPT(fill(*b.stream, ordinary, 5));
  ATTEMPT(fill(*b.stream, ordinary_wide, Wide{4, 5, 6}));
  ATTEMPT(fill_2d(*b.stream, two->data(), 100, 1, 50, 4));
  ATTEMPT(copy(*b.stream, *wide_out, *wide));
  ATTEMPT(copy(*b.stream, *two_out, *two));
  c.synchronize(*b.stream);
  c.require(has_only(*wide_out, Wide{1, 2, 3}), "wrong bytes, wide");
  c.require((*two_out)[999] == 0x0102 && (*two_out)[0] == 0x0101, "wrong bytes, two");
  c.require(has_only(ordinary, 5), "wrong bytes, ordinary");
  c.require(has_only(ordinary_wide, Wide{4, 5, 6}), "wrong bytes, ordinary, wide");
  b.check();
}

void host_functions(Checker& c) {
  Bystander b{c};
  // never freed: a function may still run after the scenario has ended early
  std::atomic_int& ran = *new std::atomic_int{0};
  repeat(3, [&] { ATTEMPT(b.stream->launch_host_func(Callable{&ran})); });
  ATTEMPT(b.stream->launch_host_func([alive = Callable{}] { throw std::runtime_error{"mine"}; }));
  bool delivered = false;
  c.attempt("synchronize", [&] {
    try {
      b.stream->synchronize();
    } catch (const std::runtime_error& error) {
      if (std::strcmp(error.what(), "mine") != 0) throw;
      delivered = true;
    }
  });
  c.require(delivered, "the exception of a host function is lost");
  c.require(ran == 3, "a host function did not run once");
  b.check();
}

/// Functions that are pending when the runtime is lost never run, but they are destroyed.
void host_functions_queued(Checker& c) {
  Bystander b{c};
  // never freed: a function may still run after the scenario has ended early
  std::atomic_int& ran = *new std::atomic_int{0};
  Gate gate{c, *b.stream};
  repeat(3, [&] { ATTEMPT(b.stream->launch_host_func(Callable{&ran})); });
  REQUIRE(!b.stream->query(), "the gate is open");
  gate.open();
  c.synchronize(*b.stream);
  c.require(ran == 3, "a host function did not run once");
  b.check();
}

void guards(Checker& c) {
  Bystander b{c};
  MAKE(Stream, other);
  c.attempt("StreamGuard", [&] {
    StreamGuard guard{*other};
    c.require(current_stream() == *other, "the guard is not in effect");
    guard.reset(*b.stream);
    c.require(current_stream() == *b.stream, "reset() did not change the guarded stream");
  });
  c.attempt("StreamContext", [&] {
    const StreamContext here;
    const StreamContext::Guard with{here};
  });
  ATTEMPT(synchronize());
  b.check();
}

void guards_on_two_devices(Checker& c) {
  Bystander b{c};
  MAKE(Stream, here);
  MAKE(Stream, far, second);
  const auto untouched = [&](const char* what, auto&& f) {
    c.attempt(what, [&] {
      const auto ids = [] {
        return std::pair{current_stream(second).id(), current_stream(first).id()};
      };
      const auto before = ids();
      try {
        f();
      } catch (...) {
        if (c.sound()) c.require(ids() == before, what);
        throw;
      }
      c.require(ids() == before, what);
    });
  };
  untouched("DeviceGuard", [&] {
    const DeviceGuard guard{second};
    c.require(Device::current() == second, "the guard is not in effect");
  });
  untouched("StreamGuard", [&] {
    const StreamGuard guard{*far};
    c.require(Device::current() == second, "the guard is not in effect");
  });
  untouched("StreamGuard, reset", [&] {
    StreamGuard guard{*here};
    guard.reset(*far);
    c.require(current_stream() == *far, "the guard is not in effect");
    guard.reset(*b.stream);
    c.require(current_stream() == *b.stream, "reset() did not change the guarded stream");
  });
  std::optional<StreamContext> there;
  untouched("StreamContext", [&] {
    const StreamGuard guard{*far};
    there.emplace();
  });
  untouched("StreamContext::Guard", [&] {
    const StreamContext::Guard with{*there};
    c.require(current_stream() == *far, "the context is not applied");
  });
  untouched("use", [&] {
    const StreamGuard restores{*here};
    const StreamGuard also{*far};
    b.stream->use();
    second.default_stream().use();
  });
  untouched("Device::use", [&] {
    const DeviceGuard restores{first};
    second.use();
    first.use();
  });
  b.check();
}

void buffers(Checker& c) {
  Bystander b{c};
  std::optional<Stream> other;
  c.kept_streams = 4;  // streams that free memory after other streams have used it
  c.make("Stream", other);
  MAKE(Stream, shortlived);
  for (int i : range(2)) {
    std::optional<DeviceInts> two;
    MAKE(PinnedInts, host, 256U);
    MAKE(DeviceInts, one, 256U, *other);
    if (i == 0) c.make("DeviceBuffer", two, 256U, *shortlived);
    ATTEMPT(fill(*other, *host, 1));
    ATTEMPT(one->record_stream(*b.stream));
    ATTEMPT(copy(*other, *one, *host));
    if (i == 0) shortlived.reset();  // before its buffer
  }
  c.synchronize(*other);
  REQUIRE(pointer_info(b.in->data()).kind == MemoryKind::pinned, "wrong kind");
  b.check();
}

/// What containers do: the buffer is as it was after each failure, so that the call can be
/// repeated. Without pools, resize() and deallocate() free a block once the device is done.
void buffers_changed(Checker& c) {
  c.copies_through_pool = true;
  Bystander b{c};
  c.kept_streams = 4;
  MAKE(DeviceInts, buffer, 256U, *b.stream);
  std::optional<DeviceInts> copied;
  ATTEMPT(set(*b.stream, *buffer, 255, 7));
  ATTEMPT(buffer->resize(1024));
  ATTEMPT(copied.emplace(*buffer, *b.stream));
  int value = 0;
  // If the wait fails, the copy may not go on: the place for the element ends with the call.
  const auto completed_get = [&] {
    try {
      return get(*b.stream, *copied, 255);
    } catch (const Error& error) {
      c.require(error.operation() != std::string_view{"wait for a stream"} || b.stream->query(),
                "get() has ended before its copy");
      throw;
    }
  };
  ATTEMPT(b.stream->launch_host_func([] { std::this_thread::sleep_for(2ms); }));
  ATTEMPT(value = completed_get());
  c.require(value == 7, "the element has another value");
  ATTEMPT(copied->set_stream(first.default_stream()));
  DeviceSpan<int> released;
  ATTEMPT(released = buffer->release());
  ATTEMPT(DeviceResource{}.deallocate(*b.stream, released.data(), released.size_bytes()));
  b.check();
}

/// A use that is recorded by an address within the block. The block is freed behind it.
void recorded_uses(Checker& c) {
  Bystander b{c};
  c.kept_streams = 4;
  MAKE(Stream, user);
  MAKE(DeviceInts, buffer, 256U, *b.stream);
  ATTEMPT(user->wait_stream(*b.stream));
  // first, because the scenario ends without the record if it fails
  ATTEMPT(record_stream(*user, buffer->data() + 100));
  ATTEMPT(fill(*user, *buffer, 1));
  buffer.reset();
  b.check();
}

/// A resource of the program's. Never freed: blocks may wait to be given back when a scenario has
/// ended early.
struct CountingResource {
  struct Refused {};
  DeviceResource upstream{first};
  std::atomic_int blocks{0};
  bool refuses = false;

  void* allocate(StreamRef stream, size_t bytes, size_t alignment) {
    if (refuses) throw Refused{};
    void* const block = upstream.allocate(stream, bytes, alignment);
    ++blocks;
    return block;
  }
  void deallocate(StreamRef stream, void* pointer, size_t bytes, size_t alignment) {
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
void resources(Checker& c) {
  Bystander b{c};
  c.kept_streams = 4;
  c.kept_blocks = 3;
  auto& resource = *new CountingResource;
  MAKE(Stream, user);
  MAKE(Stream, ended);
  MAKE(DeviceInts, own, 64U, std::ref(resource), *b.stream);
  MAKE(DeviceInts, used, 64U, std::ref(resource), *b.stream);
  MAKE(DeviceInts, last, 64U, std::ref(resource), *ended);
  ATTEMPT(copy(*b.stream, *own, *b.between));
  ATTEMPT(resource.refuse(c, [&] { own->resize(128); }));
  ATTEMPT(own->resize(128));
  ATTEMPT(copy(*b.stream, *b.out, own->span().subspan(0, 64)));
  ATTEMPT(used->record_stream(*user));
  ATTEMPT(fill(*ended, *last, 1));
  own.reset();
  used.reset();
  ended.reset();
  last.reset();
  b.check();
  c.synchronize(first);
  ATTEMPT(DeviceResource{first}.trim());  // gives back what waited
  if (!c.faulted()) c.require(resource.blocks == 0, "a block was not given back");
}

/// With the trace on, which asks for times in the streams. What it is not told leaves a gap in the
/// trace, and nothing else.
void traced(Checker& c) {
  begin(c);
  c.traces();
  ATTEMPT(Trace::start("/dev/null"));
  Bystander b{c};
  {
    Gate gate{c, *b.stream};  // so that the trace finds a busy stream
    ATTEMPT(fill(*b.stream, *b.out, 4));
    c.attempt("TraceRange", [&] {
      const TraceRange range{*b.stream, "mine"};
      copy(*b.stream, *b.out, *b.between);
    });
  }
  c.synchronize(*b.stream);
  ATTEMPT(Trace::write());
  b.check();
}

void memory_control(Checker& c) {
  Bystander b{c};
  REQUIRE(DeviceResource{}.reserved() > 0, "the pool holds nothing");
  MAKE(ManagedBuffer<int>, managed, 64U);
  ATTEMPT(advise(*managed, MemoryAdvice::mostly_read, first));
  ATTEMPT(prefetch(*b.stream, *managed, MemoryPlace::host()));
  MAKE(DeviceInts, box, 64U, *b.stream);
  ATTEMPT(copy_3d(*b.stream, box->data(), {16, 64}, b.in->data(), {16, 64}, {8, 4, 1}));
  c.synchronize(*b.stream);
  b.check();
}

/// Two pages, of which the second can only be read.
class HalfReadOnly {
 public:
  HalfReadOnly()
      : all_{mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)} {
    std::memset(all_, 7, 2 * page);
    mprotect(static_cast<char*>(all_) + page, page, PROT_READ);
  }
  std::span<const char> bytes() const { return {static_cast<const char*>(all_), 2 * page}; }

 private:
  static constexpr size_t page = 4096;
  void* all_;
};

/// The runtime refuses pages that cannot be written at first. Then the library finds out why, and
/// registers them for reading.
void read_only_registration(Checker& c) {
  c.copies_through_pool = true;
  Bystander b{c};
  bool can = false;
  ATTEMPT(can = first.can_pin_read_only_memory());
  if (!can) return;
  const auto& memory = *new HalfReadOnly;  // never freed, as in copies_staged
  auto& back = *new std::vector<char>(memory.bytes().size());
  {
    std::optional<HostRegistration> pin;
    c.attempt("HostRegistration of read-only pages", [&] { pin.emplace(memory.bytes()); });
    MAKE(DeviceBuffer<char>, there, back.size(), *b.stream);
    ATTEMPT(copy(*b.stream, *there, memory.bytes()));
    ATTEMPT(copy(*b.stream, back, *there));
    c.synchronize(*b.stream);
    c.require(std::ranges::equal(back, memory.bytes()), "the bytes of the pages");
  }
  b.check();
}

void native_handles(Checker& c) {
  Bystander b{c};
  std::optional<Stream> wrapped;
  MAKE(Stream, made);
  const native::stream handle = made->release();
  made.reset();
  // The caller owns the handle until it is wrapped, also if wrapping fails. So wrap it once more to
  // destroy it.
  const bool done = c.is_done("from_native, take", [&] {
    wrapped.emplace(Stream::from_native(handle, first, Ownership::take));
  });
  if (!done) {
    try {
      wrapped.emplace(Stream::from_native(handle, first, Ownership::take));
    } catch (const std::exception&) {
      std::printf("the handle stays with its caller\n");
      c.kept_streams = 1;
    }
    return;
  }
  std::optional<Stream> view;
  ATTEMPT(view.emplace(Stream::from_native(handle, Ownership::borrow)));
  ATTEMPT(view->launch_host_func(Callable{}));
  MAKE(Event, event, *view);
  std::optional<Event> again;
  ATTEMPT(again.emplace(Event::from_native(event->native(), first, Ownership::borrow)));
  ATTEMPT(b.stream->wait_event(*again));
  c.synchronize(*view);
  b.check();
}

/// The pool must not hand out a block while a stream may still use it, whatever failed when the
/// block was freed or its stream destroyed.
template <bool stream_ends>
void pinned_given_back(Checker& c) {
  Bystander b{c};
  c.kept_streams = 1;            // a stream that frees memory after another stream has used it
  constexpr size_t size = 4096;  // a size class of its own
  MAKE(Stream, stream);
  MAKE(DeviceInts, there, size, *b.stream);
  c.synchronize(*b.stream);
  MAKE(PinnedInts, block, size);
  std::array<std::optional<PinnedInts>, 2> others;
  std::ranges::fill(*block, 5);
  Gate gate{c, *stream};
  // The scenario may end early, while the copy is pending.
  ATTEMPT(there->record_stream(*stream));
  ATTEMPT(copy(*stream, *there, *block));
  MAKE(Event, end, *stream);
  if (stream_ends) stream.reset();
  const void* const used = block->data();
  block.reset();
  for (auto& other : others) {
    c.make("PinnedBuffer", other, size);
    c.require(other->data() != used,
              "a pinned block is handed out while a stream may still read it");
    std::ranges::fill(*other, 6);
  }
  ATTEMPT(PinnedPool::trim());
  gate.open();
  c.synchronize(*end);
  ATTEMPT(copy(*b.stream, *others[0], *there));
  c.synchronize(*b.stream);
  c.require(has_only(*others[0], 5), "the copy read the bytes of the block's next owner");
  b.check();
}

/// Ends the capture of a stream, if a scenario ends early: no device can be waited for until then.
struct CaptureEnd {
  native::stream handle;
  bool is_needed = false;
  ~CaptureEnd() {
    void* graph = nullptr;
    if (is_needed) vendor("StreamEndCapture", handle, &graph);
    if (graph != nullptr) vendor("GraphDestroy", graph);
  }
};

/// Allocations and queries of the library must not end a capture, even if one of their runtime
/// calls fails.
void captures(Checker& c) {
  Bystander b{c};
  constexpr size_t size = 4096;
  auto& source = *new Ints(numbers(large));  // never freed, as in copies_staged
  std::vector<unsigned char> mine(10000);
  MAKE(Stream, other);
  MAKE(Stream, captured);
  MAKE(DeviceInts, there, large, *other);
  ATTEMPT(copy(*other, *there, source));
  c.synchronize(*other);
  const native::stream handle = captured->native();
  bool capturing = false;
  CaptureEnd end{handle};
  // the fault may also occur in these direct runtime calls
  for (int i = 0; i < 2 && !capturing; ++i) {
    vendor("StreamBeginCapture", handle, 0);
    vendor("GetLastError");
    end.is_needed = true;
    ATTEMPT(capturing = captured->is_capturing());
  }
  {
    MAKE(PinnedInts, block, size);
    ATTEMPT(copy(*other, DeviceSpan<int>{there->data(), size}, *block));
    block.reset();
    MAKE(PinnedInts, another, size);
    MAKE(HostRegistration, pin, mine.data(), mine.size());
    MAKE(ManagedBuffer<int>, managed, size);
  }
  ATTEMPT(Staging::trim());
  ATTEMPT(PinnedPool::trim());
  REQUIRE(captured->is_capturing(), "the capture is over");
  void* graph = nullptr;
  const bool faulted_before = c.faulted();
  end.is_needed = false;
  const int ended = vendor("StreamEndCapture", handle, &graph);
  const bool failed_here = c.faulted() && !faulted_before;
  if (failed_here) vendor("StreamEndCapture", handle, &graph);
  if (graph != nullptr) vendor("GraphDestroy", graph);
  vendor("GetLastError");
  if (c.sound()) c.require(ended == 0 || failed_here, "the capture is broken");
  c.synchronize(*captured);
  b.check();
}

/// A capture that fails leaves no stream captured, and works when it is repeated.
void graphs(Checker& c) {
  c.kept_streams = 4;  // on which graphs are destroyed that may be under way
  Bystander b{c};
  MAKE(Stream, stream);
  MAKE(Stream, side);
  MAKE(PinnedInts, source, 64U);
  MAKE(PinnedInts, result, 64U);
  MAKE(DeviceInts, there, 64U, *stream);
  std::optional<Graph> graph;
  // a wait for that stream may fail below
  ATTEMPT(there->record_stream(*side));
  std::ranges::fill(*source, 5);
  const auto work = [&] {
    copy(*stream, *there, *source);
    side->wait_stream(*stream);
    side->launch_host_func([alive = Callable{}] {});
    copy(*side, *result, *there);
    stream->wait_stream(*side);
  };
  ATTEMPT(graph = capture(*stream, work));
  REQUIRE(!stream->is_capturing() && !side->is_capturing(), "a stream is captured");
  ATTEMPT(graph->launch(*stream));
  ATTEMPT(graph->launch(*side));
  c.synchronize(*side);
  if (c.sound()) c.require(result->data()[63] == 5, "the graph has not copied");
  ATTEMPT(graph->update(*stream, work));
  REQUIRE(graph->node_count() == 3, "another number of nodes");
  REQUIRE(graph->dot().find("copy") != std::string::npos, "no copy");
  ATTEMPT(graph->launch(*stream));
  graph.reset();  // perhaps under way
  c.synchronize(*stream);
  b.check();
}

/// Nodes of events, changed and disabled nodes, and a graph within a graph.
void graph_nodes(Checker& c) {
  c.kept_streams = 4;
  c.kept_objects = 1;
  Bystander b{c};
  MAKE(Stream, stream);
  std::optional<PinnedInts> source, other, result;
  for (auto* const buffer : {&source, &other, &result}) c.make("PinnedBuffer", *buffer, 64U);
  MAKE(DeviceInts, there, 64U, *stream);
  std::optional<Event> event;
  std::optional<Graph> inner, outer;
  event.emplace(EventOptions{.external = true});
  // its native event stays from now on
  ATTEMPT(event->record(*stream));
  std::ranges::fill(*source, 5);
  std::ranges::fill(*other, 6);
  const auto work = [&] {
    stream->wait_event(*event);
    copy(*stream, *there, *source);
    stream->launch_host_func([alive = Callable{}] {});
    copy(*stream, *result, *there);
  };
  ATTEMPT(inner = capture(*stream, work));
  const auto from_other = [&] {
    stream->wait_event(*event);
    copy(*stream, *there, *other);
    keep(*stream, Callable{});
    stream->launch_host_func([alive = Callable{}] {});
    copy(*stream, *result, *there);
  };
  ATTEMPT(inner->launch(*stream));
  ATTEMPT(inner->update(*stream, from_other));
  const auto nested = [&] {
    inner->launch(*stream);
    event->record(*stream);
  };
  ATTEMPT(outer = capture(*stream, nested));
  REQUIRE(!stream->is_capturing(), "the stream is captured");
  ATTEMPT(outer->launch(*stream));
  inner.reset();
  c.synchronize(*event);
  if (c.sound())
    c.require(result->data()[63] == 6, "the graph has not copied what it was changed to");
  outer.reset();  // perhaps under way
  event.reset();
  c.synchronize(*stream);
  b.check();
}

/// A graph lives as long as its launches, also those that have failed: the runtime may have taken
/// them, or a part of them.
template <bool handle_is_given_out>
void graph_dropped(Checker& c) {
  c.kept_streams = 4;
  c.kept_objects = 1;
  Bystander b{c};
  MAKE(Stream, stream);
  MAKE(Stream, side);
  std::optional<Graph> graph;
  auto object = std::make_shared<Callable>();
  const std::weak_ptr<Callable> kept = object;
  const auto has_run = std::make_shared<std::atomic_bool>(false);
  ATTEMPT(graph = capture(*stream, [&] {
            stream->launch_host_func([object, has_run] {
              (*object)();
              *has_run = true;
            });
          }));
  object.reset();
  if (handle_is_given_out) static_cast<void>(graph->native());
  Gate gate{c, *side};
  StreamRef next = *side;
  c.attempt(handle_is_given_out ? "marked->launch(stream)" : "graph->launch(stream)",
            [&] { graph->launch(std::exchange(next, *stream)); });
  graph.reset();
  // Without a thread the gate may be open, and the graph may have waited for the launch.
  if (c.sound() && !c.has_failed_in("StreamIsCapturing"))
    c.require(!kept.expired() || *has_run, "the graph is destroyed before its launch is complete");
  gate.open();
  c.synchronize(*side);
  c.synchronize(*stream);
  b.check();
}

void bounded_waits(Checker& c) {
  Bystander b{c};
  Gate gate{c, *b.stream};
  REQUIRE(!b.stream->synchronize_for(1ms), "returned early");
  gate.open();
  REQUIRE(b.stream->synchronize_for(patience), "never comes");
  ATTEMPT(first.synchronize());
  REQUIRE(first.synchronize_for(patience), "never comes");
  b.check();
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
  void submit(const char* what, const Source& source) {
    checker_.attempt(what, [&] {
      source.on_complete([told = told_, alive = Callable{}](const Outcome&) { ++*told; });
      ++submitted_;
    });
  }

 private:
  Checker& checker_;
  int submitted_ = 0;
  // never freed: a function may be called after the scenario has given up
  std::atomic_int* told_ = new std::atomic_int{0};
};

void completions(Checker& c) {
  Bystander b{c};
  std::optional<Event> event;
  std::optional<Future> future;
  c.watches = true;
  Told told{c};
  Gate gate{c, *b.stream};
  told.submit("on_complete", *b.stream);
  ATTEMPT(event.emplace(*b.stream));
  told.submit("Event::on_complete", *event);
  ATTEMPT(event->record(*b.stream));
  ATTEMPT(future = b.stream->future());
  gate.open();
  c.require(future->wait_for(patience), "the future is never ready");
  if (c.sound())
    c.require(future->outcome().is_ok(), "the future has an error although the work is complete");
  b.check();
}

void values(Checker& c) {
  c.waits_outside(1);
  Bystander b{c};
  MAKE(Stream, waits);
  MAKE(PinnedBuffer<std::uint32_t>, numbers, 2U);
  bool supported = false;
  ATTEMPT(supported = first.has_stream_memory_operations());
  if (!supported) return b.check();
  (*numbers)[0] = (*numbers)[1] = 0;
  ATTEMPT(b.stream->write_value(numbers->data(), 1));
  ATTEMPT(waits->wait_value(numbers->data(), 1));
  ATTEMPT(waits->write_value(numbers->data() + 1, 2));
  c.synchronize(*waits);
  c.require((*numbers)[1] == 2, "the value was not written");
  b.check();
}

/// What one process does to share. The fault sweep has one process only.
void sharing(Checker& c) {
  c.waits_outside(2);
  Bystander b{c};
  Event event{EventOptions{.interprocess = true}};
  MAKE(SharedBuffer<int>, memory, 64U, second);
  ATTEMPT(memory->ipc_handle());
  memory.reset();
  ATTEMPT(event.ipc_handle());
  ATTEMPT(event.record(*b.stream));
  ATTEMPT(b.stream->wait_event(event));
  MAKE(Stream, far, second);
  c.attempt("wait_event from another device", [&] { far->wait_event(event); });
  c.synchronize(*far);
  c.synchronize(event);
  ATTEMPT(event.query());
  b.check();
}

void views(Checker& c) {
  Bystander b{c};
  std::optional<StreamRef> view, thread_default;
  ATTEMPT(view = StreamRef::from_native(b.stream->native(), first));
  REQUIRE(StreamRef::from_native(b.stream->native()) == *view, "another");
  c.require(*view == *b.stream, "the view is another stream");
  ATTEMPT(thread_default = StreamRef::from_native(reinterpret_cast<native::stream>(2), second));
  c.synchronize(*thread_default);
  b.check();
}

void parts(Checker& c) {
  Bystander b{c};
  bool supported = false;
  ATTEMPT(supported = second.has_partitions());
  if (!supported) return b.check();
  std::array<Partition, 2> made;
  ATTEMPT(made = partition(second, 3));
  REQUIRE(partition(second, 3) == made, "other parts");
  MAKE(Stream, stream, second, StreamOptions{.partition = made[0]});
  REQUIRE(stream->multiprocessors() >= 3, "too few");
  ATTEMPT(stream->wait_stream(*b.stream));
  ATTEMPT(stream->launch_host_func(Callable{}));
  c.synchronize(*stream);
  b.check();
}

/// What devices made of threads do not have.
void hardware_properties(Checker& c) {
  REQUIRE(second.compute_capability().major > 0, "none");
  REQUIRE(Device::from_pci_bus_id(second.pci_bus_id()) == second, "another device");
  ATTEMPT(second.set_host_wait(HostWait::block));
  REQUIRE(second.host_wait() == HostWait::block, "another way");
}

void device_properties(Checker& c) {
  begin(c);
  ATTEMPT(Device::count());
  REQUIRE(!second.name().empty(), "no name");
  REQUIRE(second.memory_info().total > 0, "no memory");
  ATTEMPT(second.priority_range());
  REQUIRE(second.multiprocessor_count() > 0, "none");
  REQUIRE(second.has_memory_pools(), "none");
  ATTEMPT(second.has_stream_memory_operations());
  REQUIRE(Device::from_uuid(second.uuid()) == second, "another device");
  REQUIRE(first.can_access_peer(second), "cannot");
  ATTEMPT(second.enable_peer_access(first));
  ATTEMPT(second.enable_peer_access(first));
  ATTEMPT(second.disable_peer_access(first));
  c.synchronize(second);
  REQUIRE(Device::current() == first, "another device");
  if (std::strcmp(RUNNEL_BACKEND, "host") != 0) hardware_properties(c);
}

void two_devices(Checker& c) {
  c.copies_through_pool = true;
  c.kept_streams = 4;
  Bystander b{c};
  auto& out = *new Ints(64);  // never freed, as in copies_staged
  MAKE(Stream, far, second);
  MAKE(DeviceInts, there, 64U, *far);
  ATTEMPT(far->wait_stream(*b.stream));
  // the wait behind the copies may fail
  ATTEMPT(b.between->record_stream(*far));
  ATTEMPT(copy(*far, *there, *b.between));
  ATTEMPT(copy(*far, out, *there));
  ATTEMPT(b.stream->wait_stream(*far));
  c.synchronize(*far);
  c.require(std::equal(out.begin(), out.end(), b.in->begin()), "wrong bytes");
  b.check();
}

/// Input and output of overlap(). If run() throws, nothing may be written to the output afterwards.
template <class Memory>
struct Overlapped {
  Memory in, out, abandoned;

  explicit Overlapped(size_t size) : in(size), out(size), abandoned(size) {
    count_up(in, 1);
    std::ranges::fill(abandoned, -1);
  }
  void run(const OverlapOptions& options) try {
    overlap(in, out, options, [](StreamRef stream, DeviceSpan<const int> x, DeviceSpan<int> y) {
      copy(stream, y, x);
    });
  } catch (...) {
    std::swap(out, abandoned);
    std::ranges::fill(abandoned, -1);
    throw;
  }
  void check_abandoned(Checker& c) const {
    c.require(has_only(abandoned, -1), "work was in flight after the exception");
  }
  void check(Checker& c) const {
    c.require(std::ranges::equal(in, out), "wrong bytes");
    check_abandoned(c);
  }
};

/// Calls overlap() twice. The second call uses the streams that the first call left.
template <class Memory>
void overlaps(Checker& c, const OverlapOptions& options, size_t size) {
  Bystander b{c};
  MAKE(Overlapped<Memory>, first_time, size);
  MAKE(Overlapped<Memory>, second_time, size);
  const bool done = c.is_done("overlap", [&] { first_time->run(options); }) &&
                    c.is_done("overlap again", [&] { second_time->run(options); });
  try {
    b.check();
    if (done) {
      first_time->check(c);
      second_time->check(c);
    }
  } catch (const Over&) {
  }
  // If the runtime is lost, pending work cannot be waited for. The library's threads leave pageable
  // memory alone all the same.
  if (c.sound() || !std::is_same_v<Memory, Ints>) return;
  std::this_thread::sleep_for(5ms);
  first_time->check_abandoned(c);
  second_time->check_abandoned(c);
  new std::optional{std::move(first_time)};
  new std::optional{std::move(second_time)};
}
void overlap_a(Checker& c) {
  c.kept_streams = 2;
  overlaps<Ints>(c,
                 {.chunk = 200'000, .in_flight = 2, .strategy = OverlapStrategy::stream_per_chunk},
                 500'000);
}
void overlap_b(Checker& c) {
  c.kept_streams = 3;
  overlaps<PinnedInts>(c,
                       {.chunk = 100,
                        .in_flight = 2,
                        .strategy = OverlapStrategy::copy_compute_copy,
                        .record_times = true},
                       301);
}
/// The first copy is enqueued while the buffers are allocated.
void overlap_untimed(Checker& c) {
  c.kept_streams = 2;
  overlaps<PinnedInts>(
      c, {.chunk = 100, .in_flight = 2, .strategy = OverlapStrategy::stream_per_chunk}, 301);
}

/// From a source through a filter to a sink. The function throws at a chunk in the middle, while
/// other chunks are in flight.
void overlap_streamed(Checker& c) {
  c.kept_streams = 4;  // one of them frees a buffer that two streams have used
  Bystander b{c};
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  MAKE(PinnedBuffer<size_t>, kept, 1U);
  (*kept)[0] = 7;
  for (const size_t bad : {size_t{2}, size_t{1000}}) {
    Ints out;
    bool threw = false;
    c.attempt(bad == 2 ? "overlap, the function fails" : "overlap, streamed", [&] {
      out.clear();
      threw = false;
      int next = 0;
      const auto read = [&](std::span<int> to) {
        const size_t count = std::min(to.size(), static_cast<size_t>(350 - next));
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
                    DeviceSpan<size_t> count, const OverlapChunk& chunk) {
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
    c.require(threw == (bad == 2), "the function's exception is lost");
    const size_t chunks = threw ? bad : 4;
    c.require(out.size() == chunks * 7 && out[7] == 101, "wrong numbers");
  }
  b.check();
}

struct Scenario {
  const char* name;
  void (*run)(Checker&);
  const char* environment = "";
  bool calls_runtime = false;  // calls functions of the vendor's runtime
};
#define CASE(name) {#name, name}
#ifdef SWEEP_MPI
// Open MPI begins in a third of the time if it looks for no other processes and no network. Without
// folders of their own, many may run at a time.
constexpr const char* mpi_alone =
    "OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self "
    "OMPI_MCA_orte_create_session_dirs=0";
#endif
constexpr Scenario scenarios[] = {
    CASE(streams),
    CASE(wait_stream),
    {"wait_default_streams", wait_default_streams, "STANDIN_DEVICES=2"},
    CASE(events),
    CASE(timed_events),
    CASE(event_options),
    {"event_moves_between_devices", event_moves_between_devices, "STANDIN_DEVICES=2"},
    CASE(pool),
    CASE(copies_pinned),
    CASE(copies_small),
    {"copies_staged_idle", copies_staged<false>},
    {"copies_staged_busy", copies_staged<true>},
    {"copies_staged_short", copies_staged<true, 200'000>},
    {"copies_staged_by_host_functions", copies_staged<true>, "STANDIN_MEMORY_OPERATIONS=0"},
    {"row_to_device_small", row<true, 12, 10'000>},
    {"row_to_device_large", row<true, 4, 300'000>},
    {"row_to_host_small", row<false, 12, 10'000>},
    {"row_to_host_large", row<false, 4, 300'000>},
    {"lists_staged", lists},
    {"lists_by_host_functions", lists, "STANDIN_MEMORY_OPERATIONS=0"},
    CASE(copies_2d),
    CASE(fills),
    CASE(host_functions),
    CASE(host_functions_queued),
    CASE(guards),
    {"guards_on_two_devices", guards_on_two_devices, "STANDIN_DEVICES=2"},
    CASE(buffers),
    {"buffers_without_pools", buffers, "STANDIN_POOLS=0"},
    CASE(buffers_changed),
    {"buffers_changed_without_pools", buffers_changed, "STANDIN_POOLS=0"},
    CASE(recorded_uses),
    CASE(resources),
    {"resources_without_pools", resources, "STANDIN_POOLS=0"},
    CASE(traced),
    CASE(memory_control),
    CASE(read_only_registration),
    CASE(native_handles),
    {"pinned_given_back_first", pinned_given_back<false>},
    {"pinned_given_back_last", pinned_given_back<true>},
    {"captures", captures, "", true},
    CASE(graphs),
    CASE(graph_nodes),
    {"graph_dropped", graph_dropped<false>},
    {"graph_dropped_with_handle", graph_dropped<true>},
    CASE(bounded_waits),
    CASE(values),
    {"sharing", sharing, "STANDIN_DEVICES=2"},
    {"views", views, "STANDIN_DEVICES=2"},
    {"parts", parts, "STANDIN_DEVICES=2"},
    CASE(completions),
#ifdef SWEEP_SENDERS
    CASE(senders),
#endif
#ifdef SWEEP_MPI
    {"mpi_operations", mpi_operations, mpi_alone},
#endif
#ifdef SWEEP_CCL
    CASE(ccl_operations),
    CASE(ccl_captured),
    {"ccl_devices", ccl_devices, "STANDIN_DEVICES=2"},
    {"ccl_verbs", ccl_verbs, "STANDIN_DEVICES=2 SWEEP_ONLY=collectives"},
    {"ccl_parts", ccl_parts, "STANDIN_DEVICES=2 SWEEP_ONLY=collectives"},
    {"ccl_timeout", ccl_timeout, "STANDIN_DEVICES=2 SWEEP_ONLY=collectives"},
    {"ccl_error", ccl_error, "STANDIN_CCL_FAULT=operation=2;code=6"},
#endif
    {"device_properties", device_properties, "STANDIN_DEVICES=2"},
    {"two_devices", two_devices, "STANDIN_DEVICES=2"},
    CASE(overlap_a),
    CASE(overlap_b),
    CASE(overlap_untimed),
    CASE(overlap_streamed),
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
    try {
      scenario.run(checker);
    } catch (const Over&) {
    }
    exhaustion::recover();
    checker.finish();
    return checker.report(scenario.name);
  }
  std::fprintf(stderr, "usage: sweep_scenarios [scenario]\n");
  return 2;
}
