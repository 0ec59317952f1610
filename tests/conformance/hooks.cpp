// SPDX-License-Identifier: Apache-2.0
// <runnel/hooks.hpp>: what a hook receives. A hook is the whole process's, so that these cases are
// a program of their own.
#include <runnel/completion.hpp>
#include <runnel/graph.hpp>
#include <runnel/hooks.hpp>
#include <runnel/managed_buffer.hpp>
#include <runnel/resource_adaptors.hpp>
#include <runnel/stoppable.hpp>
#include <runnel/stream_pool.hpp>
#include <set>
#include <stdexcept>

#include "support.hpp"

namespace {
using namespace conformance;

struct ReceivedEvent : HookEvent {
  std::string name;  // of the stream
  std::thread::id thread;
  std::exception_ptr thrown;
};
using ReceivedEvents = std::vector<ReceivedEvent>;
std::mutex mutex;
ReceivedEvents received;

void remember(const HookEvent& event) noexcept {
  const std::lock_guard lock{mutex};
  received.push_back({event, event.stream_name, std::this_thread::get_id(),
                      event.exception != nullptr ? *event.exception : nullptr});
}

class Hooks : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    received.clear();
  }
  void TearDown() override {
    set_hook(nullptr);
    Conformance::TearDown();
  }
  /// The events of that kind that the hook received.
  static ReceivedEvents all(HookKind kind) {
    const std::lock_guard lock{mutex};
    ReceivedEvents found;
    for (const ReceivedEvent& each : received)
      if (each.kind == kind) found.push_back(each);
    return found;
  }
  /// Checks that the hook received the kind before and after, once each, with one number. Returns
  /// what was said after.
  static HookEvent pair(HookKind kind) {
    const ReceivedEvents found = all(kind);
    EXPECT_EQ(found.size(), 2U) << to_string(kind);
    if (found.size() != 2) return {};
    EXPECT_EQ(found[0].phase, HookPhase::before) << to_string(kind);
    EXPECT_EQ(found[1].phase, HookPhase::after) << to_string(kind);
    EXPECT_EQ(found[0].number, found[1].number) << to_string(kind);
    EXPECT_NE(found[0].number, 0U) << to_string(kind);
    return found[1];
  }
  /// Checks that the hook received the kind once, after it had happened.
  static HookEvent single(HookKind kind) {
    const ReceivedEvents found = all(kind);
    EXPECT_EQ(found.size(), 1U) << to_string(kind);
    if (found.size() != 1) return {};
    EXPECT_EQ(found[0].phase, HookPhase::after) << to_string(kind);
    return found[0];
  }
};

TEST_F(Hooks, EachKindHasItsOwnName) {
  std::set<std::string> names;
  const int kinds = static_cast<int>(HookKind::lost_exception) + 1;
  for (int kind : range(kinds)) names.insert(to_string(static_cast<HookKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kinds));
  EXPECT_FALSE(names.contains(""));
}

TEST_F(Hooks, WithoutAHookNothingIsReported) {
  EXPECT_EQ(set_hook(remember), nullptr);
  EXPECT_EQ(set_hook(nullptr), &remember);
  Stream stream;
  EXPECT_TRUE(runs(stream));
  stream.synchronize();
  EXPECT_TRUE(received.empty());
}

TEST_F(Hooks, StreamsAreReported) {
  Stream earlier;
  set_hook(remember);
  uint64_t id = 0;
  {
    const Stream stream{{.name = "upload"}};
    id = stream.id();
    const ReceivedEvents made = all(HookKind::stream_made);
    ASSERT_EQ(made.size(), 1U);
    EXPECT_EQ(made[0].stream, id);
    EXPECT_EQ(made[0].native_stream, stream.native());
    EXPECT_EQ(made[0].device, stream.device().ordinal());
    EXPECT_EQ(made[0].name, "upload");
    earlier = Stream{};  // ends a stream that was made before the hook was set
  }
  const ReceivedEvents ended = all(HookKind::stream_ended);
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[1].stream, id);
}

TEST_F(Hooks, EventsAndWaitsAreReported) {
  Stream first, second;
  set_hook(remember);
  Event event;
  first.record_event(event);
  second.wait_event(event);
  second.wait_stream(first);
  first.wait_stream(first);  // nothing to do
  event.synchronize();
  second.synchronize();
  set_hook(nullptr);
  const HookEvent recorded = single(HookKind::event_recorded);
  EXPECT_EQ(recorded.stream, first.id());
  EXPECT_EQ(recorded.event, event.native());
  const HookEvent waited = single(HookKind::event_waited);
  EXPECT_EQ(waited.stream, second.id());
  EXPECT_EQ(waited.event, event.native());
  EXPECT_GT(waited.number, recorded.number);
  const HookEvent joined = single(HookKind::stream_waited);
  EXPECT_EQ(joined.stream, second.id());
  EXPECT_EQ(joined.other_stream, first.id());
  const ReceivedEvents waits = all(HookKind::host_wait);
  ASSERT_EQ(waits.size(), 4U);
  EXPECT_EQ(waits[0].stream, 0U);
  EXPECT_EQ(waits[2].stream, second.id());
}

/// Lets `f` wait for work behind a closed gate. Checks that the wait is announced before it begins,
/// and once it is over: the gate opens only then.
template <class F>
void expect_wait(const char* name, F&& f) {
  Stream held;
  Gate gate{held};
  received.clear();
  set_hook(remember);
  const auto is_announced = [](HookPhase phase) {
    const std::lock_guard lock{mutex};
    return std::ranges::any_of(received, [&](const ReceivedEvent& each) {
      return each.kind == HookKind::host_wait && each.phase == phase;
    });
  };
  bool is_begun = false;
  std::thread opener{[&] {
    is_begun = eventually([&] { return is_announced(HookPhase::before); });
    gate.open();
  }};
  f(held);
  opener.join();
  set_hook(nullptr);
  EXPECT_TRUE(is_begun) << name;
  EXPECT_TRUE(is_announced(HookPhase::after)) << name;
}

#define EXPECT_WAIT(...) \
  expect_wait(#__VA_ARGS__, [&]([[maybe_unused]] const Stream& held) { __VA_ARGS__; })
TEST_F(Hooks, EachWaitOfTheHostIsAnnounced) {
  constexpr std::chrono::seconds long_time{60};
  const auto until = [&] { return Clock::now() + long_time; };
  std::error_code code;
  EXPECT_WAIT(held.synchronize());
  EXPECT_WAIT(held.synchronize(code));
  EXPECT_WAIT(EXPECT_TRUE(held.synchronize_for(long_time)));
  EXPECT_WAIT(EXPECT_TRUE(held.synchronize_until(until())));
  EXPECT_WAIT(EXPECT_TRUE(synchronize(held, std::stop_token{})));
  EXPECT_WAIT(held.record_event().synchronize());
  EXPECT_WAIT(held.record_event().synchronize(code));
  EXPECT_WAIT(EXPECT_TRUE(held.record_event().synchronize_for(long_time)));
  EXPECT_WAIT(EXPECT_TRUE(held.record_event().synchronize_until(until())));
  EXPECT_WAIT(EXPECT_TRUE(synchronize(held.record_event(), std::stop_token{})));
  EXPECT_WAIT(held.device().synchronize());
  EXPECT_WAIT(held.device().synchronize(code));
  EXPECT_WAIT(EXPECT_TRUE(held.device().synchronize_for(long_time)));
  EXPECT_WAIT(EXPECT_TRUE(held.device().synchronize_until(until())));
  EXPECT_WAIT(held.future().wait());
  EXPECT_WAIT(EXPECT_TRUE(held.future().wait_for(long_time)));
  EXPECT_WAIT(EXPECT_TRUE(held.future().wait_until(until())));
  EXPECT_WAIT(EXPECT_EQ(held.future().outcome().code(), nothing_thrown));
  EXPECT_WAIT(EXPECT_TRUE(quiesce_for(long_time)));
  EXPECT_EQ(code, nothing_thrown);
}

TEST_F(Hooks, AWaitForALeaseIsAnnounced) {
  StreamPool pool{Device::current(), {.size = 1, .max = 1}};
  expect_wait("lease", [&](const Stream&) {
    std::optional<StreamLease> first = pool.acquire();
    std::thread giver{[&] {
      EXPECT_TRUE(eventually([] {
        const std::lock_guard lock{mutex};
        return std::ranges::any_of(
            received, [](const ReceivedEvent& each) { return each.kind == HookKind::host_wait; });
      }));
      first.reset();
    }};
    EXPECT_TRUE(pool.acquire_for(patience).has_value());
    giver.join();
  });
}

TEST_F(Hooks, ASharedEventOfAnotherDeviceIsOneWait) {
  SKIP_IF(Device::count() < 2, "there is one device");
  const Stream here{Device{0}}, there{Device{1}};
  const Event event{here, EventOptions{.interprocess = true}};
  set_hook(remember);
  there.wait_event(event);
  set_hook(nullptr);
  EXPECT_EQ(received.size(), 1U);
  const HookEvent waited = single(HookKind::event_waited);
  EXPECT_EQ(waited.stream, there.id());
  EXPECT_EQ(waited.event, event.native());
  there.synchronize();
}

TEST_F(Hooks, CopiesAndFillsAreReported) {
  Stream stream;
  DeviceInts buffer{1000, stream};
  PinnedInts pinned{1000};
  set_hook(remember);
  copy(stream, buffer, pinned);
  set_hook(nullptr);
  const HookEvent copied = pair(HookKind::copy);
  EXPECT_EQ(copied.stream, stream.id());
  EXPECT_EQ(copied.bytes, 4000U);
  EXPECT_EQ(copied.to, buffer.data());
  EXPECT_EQ(copied.from, pinned.data());
  EXPECT_EQ(copied.to_kind, MemoryKind::device);
  EXPECT_EQ(copied.from_kind, MemoryKind::pinned);
  EXPECT_FALSE(copied.failed);
  EXPECT_FALSE(copied.captured);
  EXPECT_STREQ(copied.operation, "copy");

  received.clear();
  set_hook(remember);
  fill(stream, buffer, 7);
  copy_bytes(stream, buffer.data(), pinned.data(), 0);
  set_hook(nullptr);
  const HookEvent filled = pair(HookKind::fill);
  EXPECT_EQ(filled.bytes, 4000U);
  EXPECT_EQ(filled.to, buffer.data());
  EXPECT_TRUE(all(HookKind::copy).empty());
  stream.synchronize();
}

TEST_F(Hooks, PartsOfAnOperationAreNotReported) {
  struct Three {
    unsigned char bytes[3];
  };
  Stream stream;
  DeviceBuffer<Three> buffer{5000, stream};
  set_hook(remember);
  // copies of a pinned block, and copies of what is filled already
  fill(stream, buffer, Three{{1, 2, 3}});
  set_hook(nullptr);
  EXPECT_EQ(pair(HookKind::fill).bytes, 15000U);
  EXPECT_EQ(received.size(), 2U);
  stream.synchronize();
}

TEST_F(Hooks, HostFunctionsAndTheirRunsAreReported) {
  Stream stream;
  set_hook(remember);
  enqueue_nothing(stream);
  stream.synchronize();
  stream.launch_host_func([] { throw std::runtime_error{"mine"}; });
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  set_hook(nullptr);
  const ReceivedEvents launched = all(HookKind::host_function);
  const ReceivedEvents ran = all(HookKind::host_function_run);
  ASSERT_EQ(launched.size(), 4U);
  ASSERT_EQ(ran.size(), 4U);
  for (const size_t i : {0U, 2U}) {
    EXPECT_EQ(ran[i].number, launched[i].number);
    EXPECT_EQ(ran[i].stream, stream.id());
    EXPECT_EQ(ran[i].phase, HookPhase::before);
    EXPECT_EQ(ran[i + 1].phase, HookPhase::after);
    EXPECT_EQ(ran[i + 1].thread, ran[i].thread);
  }
  EXPECT_FALSE(ran[1].failed);
  EXPECT_TRUE(ran[3].failed);
}

std::string what_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST_F(Hooks, UncollectedExceptionsAreReported) {
  set_hook(remember);
  uint64_t id = 0;
  {
    const Stream stream, collected;
    id = stream.id();
    for (const char* text : {"first", "second"})
      stream.launch_host_func([text] { throw std::runtime_error{text}; });
    Event{stream}.synchronize();
    collected.launch_host_func([] { throw std::runtime_error{"collected"}; });
    EXPECT_THROW(collected.synchronize(), std::runtime_error);
    EXPECT_TRUE(all(HookKind::lost_exception).empty());
  }
  const HookEvent event = single(HookKind::lost_exception);
  EXPECT_EQ(event.stream, id);
  EXPECT_TRUE(event.failed);
  EXPECT_EQ(what_of(all(HookKind::lost_exception).at(0).thrown), "first");
}

TEST_F(Hooks, ExceptionsAfterTheStreamsEndAreReported) {
  set_hook(remember);
  Gate gate;
  uint64_t id = 0;
  {
    const Stream stream;
    id = stream.id();
    gate.close_on(stream);
    stream.launch_host_func([] { throw std::runtime_error{"late"}; });
  }
  EXPECT_TRUE(all(HookKind::lost_exception).empty());
  gate.open();
  ASSERT_TRUE(eventually([] { return !all(HookKind::lost_exception).empty(); }));
  EXPECT_EQ(single(HookKind::lost_exception).stream, id);
  EXPECT_EQ(what_of(all(HookKind::lost_exception).at(0).thrown), "late");
}

TEST_F(Hooks, TheDeviceOfAnEndedStreamIsReported) {
  SKIP_IF(Device::count() < 2, "there is one device");
  set_hook(remember);
  Gate gate;
  uint64_t id = 0;
  {
    const Stream stream{Device{1}};
    id = stream.id();
    gate.close_on(stream);
    enqueue_nothing(stream);
  }
  Streams later;  // of another device
  repeat(64, [&] { later.emplace_back(Device{0}); });
  gate.open();
  const auto runs_of_the_ended = [id] {
    Ints devices;
    for (const ReceivedEvent& each : all(HookKind::host_function_run))
      if (each.stream == id) devices.push_back(each.device);
    return devices;
  };
  ASSERT_TRUE(eventually([&] { return runs_of_the_ended().size() == 4; }));
  EXPECT_EQ(runs_of_the_ended(), std::vector(4, 1));
}

TEST_F(Hooks, GraphsAreReported) {
  Stream stream, other;
  std::atomic<int> runs{0};
  set_hook(remember);
  const Graph graph = capture(stream, [&] { stream.launch_host_func([&] { ++runs; }); });
  const HookEvent captured = pair(HookKind::host_function);
  EXPECT_TRUE(captured.captured);
  EXPECT_TRUE(all(HookKind::host_function_run).empty());
  graph.launch(stream);
  stream.synchronize();
  graph.launch(other);
  other.synchronize();
  set_hook(nullptr);
  EXPECT_EQ(runs, 2);
  const ReceivedEvents launches = all(HookKind::graph_launch);
  ASSERT_EQ(launches.size(), 4U);
  EXPECT_EQ(launches[0].stream, stream.id());
  EXPECT_FALSE(launches[0].captured);
  const ReceivedEvents ran = all(HookKind::host_function_run);
  ASSERT_EQ(ran.size(), 4U);
  EXPECT_EQ(ran[0].number, captured.number);
  EXPECT_EQ(ran[0].stream, stream.id());
  EXPECT_EQ(ran[2].stream, other.id());
}

TEST_F(Hooks, MemoryIsReported) {
  Stream stream;
  set_hook(remember);
  const void* places[3];
  {
    const DeviceBuffer<char> buffer{1000, stream};
    const PinnedBuffer<char> pinned{2000};
    const ManagedBuffer<char> managed{3000};
    places[0] = buffer.data();
    places[1] = pinned.data();
    places[2] = managed.data();
  }
  set_hook(nullptr);
  const ReceivedEvents made = all(HookKind::allocation);
  const ReceivedEvents freed = all(HookKind::deallocation);
  ASSERT_EQ(made.size(), 6U);
  ASSERT_EQ(freed.size(), 3U);
  constexpr size_t bytes[] = {1000, 2000, 3000};
  constexpr MemoryKind kinds[] = {MemoryKind::device, MemoryKind::pinned, MemoryKind::managed};
  for (size_t i : range(3UL)) {
    EXPECT_EQ(made[2 * i].to, nullptr);
    EXPECT_EQ(made[2 * i + 1].to, places[i]);
    EXPECT_EQ(made[2 * i + 1].to_kind, kinds[i]);
    EXPECT_GE(made[2 * i + 1].bytes, bytes[i]);  // the pool rounds up
    EXPECT_EQ(freed[i].to, places[2 - i]);
    EXPECT_EQ(freed[i].to_kind, kinds[2 - i]);
  }
  EXPECT_EQ(made[1].stream, stream.id());
  EXPECT_EQ(freed[2].stream, stream.id());
}

TEST_F(Hooks, MemoryOfAGraphIsCaptured) {
  SKIP_IF(!device().has_memory_pools(), "the device has no memory pools");
  Stream stream;
  set_hook(remember);
  Graph graph;
  const auto work = [&] { const DeviceBuffer<char> buffer{1000, stream}; };
  const auto code = code_of([&] { graph = capture(stream, work); });
  set_hook(nullptr);
  SKIP_IF(code == errc::capture, "this runtime cannot capture allocations");
  EXPECT_TRUE(pair(HookKind::allocation).captured);
  EXPECT_TRUE(single(HookKind::deallocation).captured);
}

TEST_F(Hooks, AResourcesMemoryIsReportedOnce) {
  Stream stream, other;
  set_hook(remember);
  const void* place = nullptr;
  {
    DeviceBuffer<char> buffer{1000, NativeDeviceResource{device()}, stream};
    place = buffer.data();
    buffer.record_stream(other);
  }
  set_hook(nullptr);
  const HookEvent made = pair(HookKind::allocation);
  EXPECT_EQ(made.to, place);
  EXPECT_EQ(made.bytes, 1000U);
  EXPECT_EQ(made.stream, stream.id());
  const HookEvent freed = single(HookKind::deallocation);
  EXPECT_EQ(freed.to, place);
  EXPECT_EQ(freed.stream, stream.id());
  stream.synchronize();
}

/// What a hook sees of work on that stream.
void expect_told_of(StreamRef stream) {
  const uint64_t id = stream.id();
  received.clear();
  set_hook(remember);
  Event event;
  {
    DeviceInts buffer{100, stream};
    fill(stream, buffer, 1);
    enqueue_nothing(stream);
    stream.record_event(event);
  }
  stream.synchronize();
  set_hook(nullptr);
  std::set<HookKind> kinds;
  for (const ReceivedEvent& each : received) {
    if (each.stream == 0) continue;
    EXPECT_EQ(each.stream, id) << to_string(each.kind);
    kinds.insert(each.kind);
    if (each.kind == HookKind::host_wait) continue;  // says the id only
    EXPECT_EQ(each.device, stream.device().ordinal()) << to_string(each.kind);
    EXPECT_EQ(each.native_stream, stream.native()) << to_string(each.kind);
    EXPECT_FALSE(each.captured);
  }
  for (const HookKind kind :
       {HookKind::allocation, HookKind::fill, HookKind::host_function, HookKind::host_function_run,
        HookKind::event_recorded, HookKind::deallocation, HookKind::host_wait})
    EXPECT_TRUE(kinds.contains(kind)) << to_string(kind);
}

TEST_F(Hooks, DefaultStreamsAreReported) {
  expect_told_of(device().default_stream());
  on_thread([] {
    set_hook(remember);
    const StreamRef own = StreamRef::per_thread_default(device());
    const HookEvent made = single(HookKind::stream_made);  // at the first use by the thread
    EXPECT_EQ(made.stream, own.id());
    expect_told_of(own);
    received.clear();
    set_hook(remember);
  });
  set_hook(nullptr);
  EXPECT_EQ(all(HookKind::stream_ended).size(), 1U)
      << "the thread's default stream ends with the thread";
}

TEST_F(Hooks, BorrowedStreamsAreReportedAsOneStream) {
  Stream owner;
  set_hook(remember);
  uint64_t id = 0;
  {
    const Stream borrowed = borrow(owner);
    id = borrowed.id();
    expect_told_of(borrowed);
    EXPECT_EQ(id, owner.id());
    received.clear();
    set_hook(remember);
  }
  EXPECT_TRUE(all(HookKind::stream_ended).empty()) << "the owner has it still";
  const native::stream handle = owner.release();
  {
    const Stream foreign = borrow(handle);
    EXPECT_NE(foreign.id(), id);
    EXPECT_EQ(single(HookKind::stream_made).stream, foreign.id());
    expect_told_of(foreign);
  }
  const Stream taken = take(handle);
  expect_told_of(taken);
}

TEST_F(Hooks, MovesAndMovedFromStreamsAreNotReported) {
  Stream stream;
  set_hook(remember);
  const Stream moved{std::move(stream)};
  EXPECT_ERROR(invalid_handle, stream.launch_host_func([] {}));
  EXPECT_ERROR(invalid_handle, stream.synchronize());
  EXPECT_ERROR(invalid_handle, DeviceInts{1, stream});
  EXPECT_TRUE(received.empty());
  expect_told_of(moved);
}

TEST_F(Hooks, AFailedCallIsReported) {
  Stream stream;
  set_hook(remember);
  EXPECT_ERROR(out_of_memory, DeviceBuffer<char>{gib * gib, stream});
  // refused before anything is enqueued
  EXPECT_ERROR(invalid_argument, copy_bytes(stream, nullptr, nullptr, 8));
  set_hook(nullptr);
  EXPECT_TRUE(pair(HookKind::allocation).failed);
  EXPECT_TRUE(all(HookKind::copy).empty());
}

TEST_F(Hooks, RefusedCopiesAndFillsAreNotReported) {
  struct Triple {
    int a, b, c;
  };
  Stream stream;
  std::vector<Triple> pageable(100);
  DeviceBuffer<Triple> on_device{100, stream};
  set_hook(remember);
  EXPECT_ERROR(not_permitted, copy(stream, on_device, pageable, {Pageable::refuse}));
  const Graph graph =
      capture(stream, [&] { EXPECT_ERROR(capture, fill(stream, on_device, Triple{1, 2, 3})); });
  set_hook(nullptr);
  EXPECT_TRUE(all(HookKind::copy).empty());
  EXPECT_TRUE(all(HookKind::fill).empty());
}

TEST_F(Hooks, TheSourceLocationIsReported) {
  Stream stream;
  set_hook(remember);
  unsigned outer_line = 0, inner_line = 0;
  {
    const HookLocation outer;
    outer_line = __LINE__ - 1;
    {
      const HookLocation inner;
      inner_line = __LINE__ - 1;
      enqueue_nothing(stream);
    }
    Event event;
    stream.record_event(event);
  }
  stream.synchronize();
  set_hook(nullptr);
  EXPECT_EQ(pair(HookKind::host_function).where.line, inner_line);
  EXPECT_EQ(single(HookKind::event_recorded).where.line, outer_line);
  EXPECT_EQ(pair(HookKind::host_wait).where.line, 0U);
}

std::error_code code_in_hook;
void use_the_library(const HookEvent& event) noexcept {
  if (event.kind == HookKind::event_recorded) code_in_hook = code_of([] { return Stream{}; });
}
TEST_F(Hooks, AHookMustNotUseTheLibrary) {
  Stream stream;
  code_in_hook = nothing_thrown;
  set_hook(use_the_library);
  Event event;
  stream.record_event(event);
  set_hook(nullptr);
  EXPECT_EQ(code_in_hook, errc::not_permitted);
  EXPECT_TRUE(runs(stream));  // the thread may use it again
}

/// What a hook must not do to its caller.
struct Redirection {
  const Stream* stream;
  StreamPool* pool;
  StreamGuard* guard;
  const StreamContext* context;
  std::vector<std::string> texts{};
};
Redirection* redirection = nullptr;
void redirect_the_caller(const HookEvent& event) noexcept {
  if (event.kind != HookKind::event_recorded) return;
  Redirection& r = *redirection;
  r.texts = {TEXT_OF(r.stream->use()),
             TEXT_OF(set_current_stream(*r.stream)),
             TEXT_OF(StreamGuard{*r.stream}),
             TEXT_OF(r.guard->reset(*r.stream)),
             TEXT_OF(StreamContext::Guard{*r.context}),
             TEXT_OF(r.pool->acquire()),
             TEXT_OF(r.stream->device().use())};
  set_default_pageable(Pageable::block);
}
TEST_F(Hooks, AHookDoesNotRedirectItsCallersWork) {
  const Stream stream, others;
  StreamPool pool{device(), {.size = 1}};
  StreamGuard with{stream};
  Redirection tried{&others, &pool, &with, nullptr};
  const StreamContext context;
  tried.context = &context;
  redirection = &tried;
  set_hook(redirect_the_caller);
  Event event;
  stream.record_event(event);
  set_hook(nullptr);
  ASSERT_EQ(tried.texts.size(), 7U);
  for (const std::string& text : tried.texts) EXPECT_SAYS(text, "a hook");
  EXPECT_EQ(current_stream(), stream);
  EXPECT_EQ(default_pageable(), Pageable::stage);
  EXPECT_EQ(pool.leased(), 0U);
}

// A hook that is called for a call may wait for another thread that makes the same call.
HookKind kind_to_wait_at;
std::atomic<bool> is_hook_called, is_other_done, has_hook_met_other;
void wait_for_the_other_thread(const HookEvent& event) noexcept {
  if (event.kind != kind_to_wait_at || is_hook_called.exchange(true)) return;
  has_hook_met_other = eventually([] { return is_other_done.load(); });
}
template <class F>
void expect_done_during_a_hook(HookKind kind, F call) {
  kind_to_wait_at = kind;
  is_hook_called = is_other_done = has_hook_met_other = false;
  std::thread other{[&] {
    EXPECT_TRUE(eventually([] { return is_hook_called.load(); })) << to_string(kind);
    call();
    is_other_done = true;
  }};
  set_hook(wait_for_the_other_thread);
  call();
  other.join();
  set_hook(nullptr);
  EXPECT_TRUE(has_hook_met_other) << to_string(kind);
}
TEST_F(Hooks, WhileAHookIsCalledOtherThreadsDoTheSame) {
  StreamPool pool{device(), {.size = 1, .max = 3}};
  const StreamLease first = pool.acquire();
  expect_done_during_a_hook(HookKind::stream_made, [&] { EXPECT_TRUE(runs(pool.acquire())); });
  const Ints in(1024);
  const auto overlap_once = [&] {
    Ints out(in.size());
    overlap(
        in, out, {.chunk = 256, .in_flight = 2},
        [](StreamRef stream, DeviceSpan<const int>, DeviceSpan<int> to) { fill(stream, to, 1); });
    EXPECT_EQ(out, Ints(in.size(), 1));
  };
  overlap_once();  // stores its streams for the next ones
  expect_done_during_a_hook(HookKind::stream_made, overlap_once);
  expect_done_during_a_hook(HookKind::stream_ended, overlap_once);
}

// Otherwise the first chunk's function would wait for the copies of the chunks behind it.
TEST_F(Hooks, OverlapsEventBehindEachCopyInIsReported) {
  const PinnedInts in(8 * 1024);
  PinnedInts out(in.size());
  set_hook(remember);
  overlap(in, out, {.chunk = 1024, .in_flight = 4, .strategy = OverlapStrategy::copy_compute_copy},
          [](StreamRef stream, DeviceSpan<const int>, DeviceSpan<int> to) { fill(stream, to, 1); });
  set_hook(nullptr);
  const uint64_t first = all(HookKind::copy).front().stream;
  std::vector<HookKind> calls;  // of the stream that copies in
  for (const ReceivedEvent& each : received)
    if (each.stream == first && each.phase == HookPhase::after &&
        (each.kind == HookKind::copy || each.kind == HookKind::event_recorded))
      calls.push_back(each.kind);
  ASSERT_EQ(calls.size(), 16U);
  for (size_t i : range(calls.size()))
    EXPECT_EQ(calls[i], i % 2 == 0 ? HookKind::copy : HookKind::event_recorded) << i;
}

TEST_F(Hooks, FourThreadsCallOneHook) {
  constexpr int threads = 4, copies = 50;
  set_hook(remember);
  on_threads(threads, [](int i) {
    Stream stream;
    PinnedBuffer<char> pinned(static_cast<size_t>(100 + i));
    DeviceBuffer<char> buffer{pinned.size(), stream};
    repeat(copies, [&] { copy(stream, buffer, pinned); });
    stream.synchronize();
  });
  set_hook(nullptr);
  const ReceivedEvents all_copies = all(HookKind::copy);
  ASSERT_EQ(all_copies.size(), 2U * threads * copies);
  std::set<uint64_t> numbers, streams;
  for (int i : range(threads)) {
    const auto bytes = static_cast<size_t>(100 + i);
    ReceivedEvents own;
    for (const ReceivedEvent& each : all_copies)
      if (each.bytes == bytes) own.push_back(each);
    ASSERT_EQ(own.size(), 2U * copies);
    for (size_t n : range(own.size())) {
      EXPECT_EQ(own[n].phase, n % 2 == 0 ? HookPhase::before : HookPhase::after);
      EXPECT_EQ(own[n].thread, own[0].thread);
      EXPECT_EQ(own[n].stream, own[0].stream);
      numbers.insert(own[n].number);
    }
    streams.insert(own[0].stream);
  }
  EXPECT_EQ(numbers.size(), size_t{threads} * copies);
  EXPECT_EQ(streams.size(), size_t{threads});
}

}  // namespace
