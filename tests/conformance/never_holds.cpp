// SPDX-License-Identifier: Apache-2.0
// No call whose name is not a wait waits for another stream's work, which may wait for the caller.
// The exceptions are in docs/memory.md, in bold, and left out here. Every public operation is
// called behind a closed gate, and must return. tests/analysis/lint/never_holds.py finds the
// operations that are missing here.
#include <ostream>
#include <runnel/foreign_stream.hpp>
#include <runnel/hooks.hpp>
#include <runnel/overlap_bytes.hpp>
#include <runnel/resource_adaptors.hpp>
#include <runnel/trace.hpp>

#include "../support/foreign_capture.hpp"
#include "support.hpp"

namespace conformance::never_holds_cases {

constexpr size_t size = 256;

/// What the operations use. It is made before the gate closes.
struct World {
  Stream work;  // the gate closes it
  Stream other;
  Stream third;
  StreamRef s = other;  // the stream that an operation uses: `other`, or `work` behind the gate
  Device device = Device::current();
  DeviceInts a{size, other}, b{size, other};
  PinnedInts pinned{size};
  PinnedBuffer<uint32_t> number{64};
  Ints pageable = Ints(size, 1), large = Ints(512 * kib, 1);
  DeviceInts room{large.size(), other};
  ManagedBuffer<int> managed = managed_or_none(device);
  Event event;
  TimedEvent start{other}, stop{other};
  DeviceResource memory{device};
  StatisticsResource<DeviceResource> counted{memory};
  LimitResource<DeviceResource> limited{memory, mib};
  StreamPool pool{device, {.size = 2}};
  Future future = other.future();
  StreamContext context;
  std::vector<std::byte> registered = std::vector<std::byte>(1 << 16);

  // What an operation destroys, replaces or gives back; its `prepare` makes it.
  std::optional<Stream> stream;
  std::optional<Event> lone_event;
  std::optional<Graph> graph;
  std::optional<PinnedBytes> block, another_block;
  std::optional<DeviceInts> buffer;
  std::optional<ManagedBuffer<int>> managed_block;
  std::optional<SharedBuffer<int>> shared;
  std::optional<HostRegistration> registration;
  std::optional<StreamPool> lone_pool;
  std::optional<StreamLease> lease;
  std::optional<ForeignStream> foreign;
  void* memory_block = nullptr;

  static ManagedBuffer<int> managed_or_none(Device device) {
    try {
      return ManagedBuffer<int>{size, device};
    } catch (const Error&) {
      return {};
    }
  }
};

constexpr size_t many_ints = (256 * mib) + 1;  // more than the pool keeps

using Step = void (*)(World&);
void nothing(World&) {}

enum class Where { another_stream, behind_the_gate, during_a_release };

/// An operation. `run` may throw an Error: refusing is not holding.
struct Operation {
  const char* name;
  Step run;
  Step prepare = nothing;
};
std::ostream& operator<<(std::ostream& out, const Operation& operation) {
  return out << operation.name;
}

void make_graph(World& w) {
  w.graph.emplace(capture(w.third, [&] {
    fill(w.third, w.a, 1);
    enqueue_nothing(w.third);
  }));
}
void make_block(World& w) { w.memory_block = w.memory.allocate(w.other, size); }
void fill_cache(World&) {
  for (size_t bytes = 4096; bytes <= mib; bytes *= 4) const PinnedBytes cached{bytes};
}
void set_tight_limit(World& w) {
  // What an earlier test has dropped counts against the limit until it is released.
  EXPECT_EVENTUALLY(PinnedPool::statistics().releasing == 0);
  fill_cache(w);
  const PinnedStatistics now = PinnedPool::statistics();
  PinnedPool::set_limit(now.in_use + now.cached);
}
void stage_once(World& w) {
  copy(w.other, w.room, w.large);
  w.other.synchronize();
}
/// A block that the pool does not keep.
template <bool write_combined>
void make_large_block(World& w) {
  w.block.emplace(gib + 1, PinnedOptions{.write_combined = write_combined});
}
void make_number(World& w) { w.number[0] = 1; }
void make_registration(World& w) { w.registration.emplace(w.registered); }
void make_shared(World& w) { w.shared.emplace(size, w.device); }
void make_pool(World& w) { w.lone_pool.emplace(w.device, StreamPoolOptions{.size = 1}); }
void make_lease(World& w) { w.lease.emplace(w.pool.acquire()); }
void make_buffer(World& w) { w.buffer.emplace(size, w.third); }
void make_foreign(World& w) { w.foreign.emplace(w.other.native(), w.device, nullptr); }
void make_stream(World& w) { w.stream.emplace(); }
template <auto resource>
void use(World& w) {
  (w.*resource).deallocate(w.s, (w.*resource).allocate(w.s, size), size);
}
void use_logged(World& w) {
  LoggingResource logged{w.memory, [](const ResourceCall&) {}};
  logged.deallocate(w.s, logged.allocate(w.s, size), size);
}
void use_async(World& w) {
  const NativeDeviceResource resource{w.device};
  void* const block = resource.allocate_async(size, 256, w.s.native());
  resource.deallocate_async(block, size, 256, w.s.native());
}
void use_by_functions(World& w) {
  deallocate_to(w.counted, w.s, allocate_from(w.counted, w.s, size, 256), size, 256);
}
void make_shared_event(World& w) { w.lone_event.emplace(EventOptions{.interprocess = true}); }

/// One expression as a step. Its value says nothing here.
#define RUN(...) []([[maybe_unused]] World& w) { static_cast<void>((__VA_ARGS__)); }
/// The call of a member without arguments.
#define OF(scope, object, member, ...) \
  {#scope "::" #member, RUN(w.object member()) __VA_OPT__(, ) __VA_ARGS__}

// Each on `other`, behind the gate on `work`, and while the library's thread waits in the runtime
// to give memory back.
const Operation operations[] = {
    // stream.hpp
    {"StreamRef::from_native", RUN(StreamRef::from_native(w.s.native(), w.device))},
    {"StreamRef::per_thread_default", RUN(fill(StreamRef::per_thread_default(w.device), w.pinned, 1))},
    OF(StreamRef, s., native),
    OF(StreamRef, s., device),
    OF(StreamRef, s., id),
    OF(StreamRef, s., is_valid),
    OF(StreamRef, s., priority),
    OF(StreamRef, s., is_blocking),
    OF(StreamRef, s., multiprocessors),
    OF(StreamRef, s., name),
    OF(StreamRef, s., is_capturing),
    OF(StreamRef, s., query),
    {"StreamRef::on_complete", RUN(w.s.on_complete([](const Outcome&) {}))},
    OF(StreamRef, s., future),
    {"StreamRef::wait_event", RUN(w.s.wait_event(w.event), w.s.wait_event(w.stop))},
    {"StreamRef::wait_for_uses", RUN(w.third.wait_for_uses(w.a))},
    {"StreamRef::wait_stream", RUN(w.s.wait_stream(w.third), w.third.wait_stream(w.s), w.third.wait_stream(w.work))},
    {"StreamRef::record_event", RUN(w.s.record_event(w.event), w.s.record_event(w.stop), drop(w.s.record_event()))},
    {"StreamRef::launch_host_func", RUN(w.s.launch_host_func([] {}))},
    {"StreamRef::wait_value", RUN(w.s.wait_value(w.number.data(), 1)), make_number},
    {"StreamRef::write_value", RUN(w.s.write_value(w.number.data() + 32, 1))},
    {"StreamRef::declare_reads", RUN(w.s.declare_reads(w.pageable))},
    {"StreamRef::declare_writes", RUN(w.s.declare_writes(w.pageable))},
    OF(StreamRef, s., use),
    {"StreamRef::to_string", RUN(to_string(w.s))},
    {"StreamRef::operator<<", RUN(std::ostringstream{} << w.s)},
    {"Stream::Stream", RUN(Stream{})},
    {"Stream::~Stream",
     RUN(w.stream.reset()),
     [](World& w) {
       w.stream.emplace();
       w.stream->wait_stream(w.work);
     }},
    {"Stream::operator=",
     [](World& w) {
       w.stream->wait_stream(w.work);
       *w.stream = Stream{};
     },
     make_stream},
    {"Stream::release",
     [](World& w) {
       const native::stream handle = w.stream->release();
       drop(Stream::from_native(handle, w.device, Ownership::take));
     },
     make_stream},
    {"Stream::from_native", RUN(Stream::from_native(w.s.native(), w.device, Ownership::borrow))},
    {"ForeignStream::ForeignStream", RUN(ForeignStream(w.s.native(), w.device, nullptr))},
    {"ForeignStream::operator=", RUN(*w.foreign = ForeignStream(w.s.native(), w.device, nullptr)), make_foreign},
    {"ForeignStream::~ForeignStream", RUN(w.foreign.reset()), make_foreign},
    OF(ForeignStream, foreign->, owner, make_foreign),
    // event.hpp
    {"EventBase::EventBase", RUN(Event{std::move(w.event)})},
    {"EventBase::operator=", RUN(w.event.record(w.s), w.event = Event{w.s})},
    {"EventBase::record", RUN(w.event.record(w.s), w.event.record(w.third))},
    {"EventBase::query", RUN(w.event.record(w.s), drop(w.event.query()))},
    {"EventBase::on_complete", RUN(w.event.record(w.s), w.event.on_complete([](const Outcome&) {}))},
    OF(EventBase, event., native),
    {"EventBase::device", RUN(w.event.record(w.s), drop(w.event.device()))},
    OF(EventBase, event., is_valid),
    {"EventBase::release",
     [](World& w) {
       w.event.record(w.s);
       drop(Event::from_native(w.event.release(), w.device, Ownership::take));
     }},
    {"EventBase::to_string", RUN(w.event.record(w.s), drop(to_string(w.event)))},
    {"EventBase::operator<<", RUN(std::ostringstream{} << w.event)},
    {"Event::Event", RUN(Event{w.s})},
    {"Event::from_native", RUN(Event::from_native(w.s.record_event().release(), w.device, Ownership::take))},
    OF(Event, lone_event->, ipc_handle, make_shared_event),
    {"Event::from_ipc_handle", RUN(Event::from_ipc_handle(w.lone_event->ipc_handle())), make_shared_event},
    {"TimedEvent::TimedEvent", RUN(TimedEvent{w.s})},
    {"TimedEvent::operator-", RUN(w.stop.record(w.s), drop(w.stop - w.start))},
    // device.hpp
    OF(Device, device., use),
    OF(Device, device., name),
    OF(Device, device., compute_capability),
    OF(Device, device., uuid),
    OF(Device, device., pci_bus_id),
    OF(Device, device., host_wait),
    {"Device::set_host_wait", RUN(w.device.set_host_wait(w.device.host_wait()))},
    OF(Device, device., memory_info),
    OF(Device, device., priority_range),
    OF(Device, device., async_engine_count),
    OF(Device, device., multiprocessor_count),
    OF(Device, device., hardware_queues),
    OF(Device, device., can_map_host_memory),
    OF(Device, device., can_pin_read_only_memory),
    OF(Device, device., has_pageable_memory_access),
    OF(Device, device., can_use_host_page_tables),
    OF(Device, device., has_stream_memory_operations),
    OF(Device, device., has_partitions),
    OF(Device, device., has_memory_pools),
    {"Device::can_access_peer", RUN(w.device.can_access_peer(Device{Device::count() - 1}))},
    {"Device::enable_peer_access", RUN(w.device.enable_peer_access(Device{Device::count() - 1}))},
    {"Device::disable_peer_access", RUN(w.device.disable_peer_access(Device{Device::count() - 1}))},
    {"Device::default_stream", RUN(fill(w.device.default_stream(), w.pinned, 1))},
    {"Device::count", RUN(Device::count())},
    {"Device::why_no_device", RUN(Device::why_no_device())},
    {"Device::current", RUN(Device::current())},
    {"Device::from_pci_bus_id", RUN(Device::from_pci_bus_id(w.device.pci_bus_id()))},
    {"Device::from_uuid", RUN(Device::from_uuid(w.device.uuid()))},
    {"DeviceGuard::DeviceGuard", RUN(DeviceGuard{w.device})},
    {"DeviceGuard::~DeviceGuard", RUN(DeviceGuard{Device{Device::count() - 1}})},
    {"runtime_version", RUN(runtime_version())},
    // current.hpp
    {"current_stream", RUN(drop(current_stream(), current_stream(w.device)))},
    {"set_current_stream", RUN(set_current_stream(w.s))},
    {"SynchronizeAtExit::SynchronizeAtExit", RUN(SynchronizeAtExit{w.other})},
    {"SynchronizeAtExit::~SynchronizeAtExit", RUN(SynchronizeAtExit{w.other})},
    {"StreamGuard::StreamGuard", RUN(StreamGuard{w.s})},
    {"StreamGuard::~StreamGuard", RUN(StreamGuard{w.s})},
    {"StreamGuard::reset",
     [](World& w) {
       StreamGuard on{w.s};
       on.reset(w.third);
     }},
    {"StreamGuard::original_stream",
     [](World& w) {
       const StreamGuard on{w.s};
       drop(on.original_stream());
     }},
    {"StreamContext::StreamContext", RUN(StreamContext{})},
    {"StreamContext::Guard::Guard", RUN(StreamContext::Guard{w.context})},
    {"StreamContext::Guard::~Guard", RUN(StreamContext::Guard{w.context})},
    // completion.hpp
    {"Future::Future", RUN(Future{w.future})},
    {"Future::operator=", RUN(w.future = w.s.future())},
    {"Future::~Future", RUN(w.s.future())},
    OF(Future, future., is_valid),
    {"Future::is_ready", RUN(w.s.future().is_ready())},
    {"future_of", RUN(future_of(w.s))},
    // copy.hpp, copy_batch.hpp
    {"default_pageable", RUN(default_pageable())},
    {"set_default_pageable", RUN(set_default_pageable(Pageable::stage))},
    {"PageableGuard::PageableGuard", RUN(PageableGuard{Pageable::stage})},
    {"PageableGuard::~PageableGuard", RUN(PageableGuard{Pageable::stage})},
    {"copy",
     [](World& w) {
       copy(w.s, w.a, w.pinned), copy(w.s, w.pinned, w.b), copy(w.s, w.b, w.a);
       copy(w.s, w.a, w.pageable), copy(w.s, w.pageable, w.b);
       copy(w.s, w.room, w.large), copy(w.s, w.large, w.room);
     },
     stage_once},
    {"copy_bytes", RUN(copy_bytes(w.s, w.a.data(), w.pinned.data(), size))},
    {"copy_bytes, read at any time", RUN(copy_bytes(w.s, w.a.data(), w.pageable.data(), size, {.source = SourceAccess::any_time}))},
    {"copy, a container that is moved", RUN(copy(w.s, w.a, Ints(size)))},
    {"keep", RUN(keep(w.s, Ints(size)))},
    {"copy_2d", RUN(copy_2d(w.s, w.a.data(), 64, w.pageable.data(), 64, 32, 4), copy_2d(w.s, w.pageable.data(), 64, w.a.data(), 64, 32, 4))},
    {"copy_3d",
     [](World& w) {
       copy_3d(w.s, w.a.data(), {16, 64}, w.pageable.data(), {16, 64}, {8, 2, 2});
       copy_3d(w.s, w.pageable.data(), {16, 64}, w.a.data(), {16, 64}, {8, 2, 2});
     }},
    {"fill_bytes", RUN(fill_bytes(w.s, w.a.data(), 1, size), fill_bytes(w.s, w.pageable.data(), 1, size))},
    {"fill_2d", RUN(fill_2d(w.s, w.a.data(), 64, 1, 32, 4))},
    {"fill", RUN(fill(w.s, w.a, 7), fill(w.s, w.pinned, 7), fill(w.s, w.pageable, 7))},
    {"set", RUN(set(w.s, w.a, 1, 7))},
    {"copy_operation", RUN(copy_operation(w.a, w.pinned))},
    {"copy_batch",
     [](World& w) {
       const CopyOperation both[] = {copy_operation(w.a, w.pinned), copy_operation(w.b, w.pageable)};
       copy_batch(w.s, both);
     }},
    // graph.hpp
    {"begin_capture", RUN(begin_capture(w.s), fill(w.s, w.a, 1), drop(end_capture(w.s)))},
    {"end_capture", RUN(begin_capture(w.s), drop(end_capture(w.s)))},
    {"capture", RUN(capture(w.s, [&] { fill(w.s, w.a, 1), w.s.launch_host_func([] {}); }))},
    {"Graph::Graph", RUN(Graph{std::move(*w.graph)}), make_graph},
    {"Graph::operator=", RUN(w.graph->launch(w.s), *w.graph = Graph{}), make_graph},
    {"Graph::~Graph", RUN(w.graph->launch(w.s), w.graph.reset()), make_graph},
    {"Graph::launch", RUN(w.graph->launch(w.s), w.graph->launch(w.s)), make_graph},
    {"Graph::update", RUN(w.graph->launch(w.s), w.graph->update(w.third, [&] { fill(w.third, w.b, 2); })), make_graph},
    OF(Graph, graph->, node_count, make_graph),
    OF(Graph, graph->, dot, make_graph),
    OF(Graph, graph->, is_valid, make_graph),
    OF(Graph, graph->, device, make_graph),
    OF(Graph, graph->, native, make_graph),
    OF(Graph, graph->, native_executable, make_graph),
    // memory.hpp: device memory
    {"DeviceBuffer::DeviceBuffer", RUN(drop(DeviceInts{size, w.s}, DeviceInts{w.a, w.s}, DeviceInts{size, w.counted, w.s}))},
    {"DeviceBuffer::~DeviceBuffer",
     [](World& w) {
       fill(w.s, *w.buffer, 1);
       w.buffer->record_stream(w.s);
       w.buffer.reset();
     },
     make_buffer},
    {"DeviceBuffer::DeviceBuffer, more than the device has",
     [](World& w) {
       const bool captured = w.s.is_capturing();  // then it need not be known before the launch
       const auto code = code_of([&] { drop(DeviceBuffer<char>(mib * gib, w.s)); });
       EXPECT_TRUE(captured || code == errc::out_of_memory);
     }},
    {"DeviceBuffer::record_stream", RUN(w.a.record_stream(w.s))},
    {"DeviceBuffer::set_stream", RUN(w.a.set_stream(w.s))},
    {"DeviceBuffer::resize",
     [](World& w) {
       w.buffer->set_stream(w.s);
       w.buffer->resize(2 * size);
     },
     make_buffer},
    {"DeviceBuffer::release",
     [](World& w) {
       const DeviceSpan<int> block = w.buffer->release();
       w.memory.deallocate(w.s, block.data(), block.size_bytes());
     },
     make_buffer},
    OF(DeviceBuffer, a., span),
    {"DeviceBuffer::subspan", RUN(w.a.subspan(1, 2))},
    {"DeviceBuffer::first", RUN(w.a.first(1))},
    {"DeviceBuffer::last", RUN(w.a.last(1))},
    {"DeviceBuffer::operator DeviceSpan< T >", RUN(DeviceSpan<int>{w.a})},
    {"DeviceBuffer::operator DeviceSpan< const T >", RUN(DeviceSpan<const int>{std::as_const(w.a)})},
    OF(DeviceBuffer, a., stream),
    OF(DeviceBuffer, a., device),
    {"record_stream", RUN(record_stream(w.s, w.a), record_stream(w.s, w.pinned))},
    {"pointer_info", RUN(drop(pointer_info(w.a.data()), pointer_info(w.pageable.data()), pointer_info(w.pinned.data())))},
    {"DeviceResource::allocate", use<&World::memory>},
    {"DeviceResource::deallocate", RUN(w.memory.deallocate(w.s, w.memory_block, size)), make_block},
    OF(DeviceResource, memory., statistics),
    OF(DeviceResource, memory., reset_peak),
    {"DeviceResource::set_limit", RUN(w.memory.set_limit(w.memory.limit()))},
    OF(DeviceResource, memory., limit),
    OF(DeviceResource, memory., reserved),
    {"DeviceResource::set_release_threshold",
     RUN(w.memory.set_release_threshold(w.device.memory_info().total / 2))},
    OF(DeviceResource, memory., trim),
    {"DeviceResource::DeviceResource", RUN(DeviceResource{})},
    {"allocate_from", use_by_functions},
    {"deallocate_to", use_by_functions},
    {"LimitResource::allocate", use<&World::limited>},
    {"LimitResource::deallocate", use<&World::limited>},
    {"StatisticsResource::allocate", use<&World::counted>},
    {"StatisticsResource::deallocate", use<&World::counted>},
    {"LoggingResource::allocate", use_logged},
    {"LoggingResource::deallocate", use_logged},
    {"NativeDeviceResource::allocate",
     [](World& w) {
       const NativeDeviceResource resource{w.device};
       resource.deallocate(w.s.native(), resource.allocate(w.s.native(), size), size);
     }},
    {"NativeDeviceResource::deallocate", RUN(NativeDeviceResource{w.device}.deallocate(w.memory_block, size)), make_block},
    {"NativeDeviceResource::allocate_async", use_async},
    {"NativeDeviceResource::deallocate_async", use_async},
    {"NativeDeviceResource::deallocate_sync", RUN(NativeDeviceResource{w.device}.deallocate_sync(w.memory_block, size)), make_block},
    // memory.hpp, pinned_pool.hpp, pinned_resource.hpp: pinned memory
    {"PinnedBuffer::PinnedBuffer", [](World&) { const PinnedInts fresh{size}, fresh_too{size, {.write_combined = true}}; }},
    {"PinnedBuffer::~PinnedBuffer",
     [](World& w) {
       fill(w.s, *w.block, 1);
       w.block.reset();
     },
     RUN(w.block.emplace(size))},
    {"PinnedBuffer::~PinnedBuffer, more than the pool keeps", RUN(w.block.reset()), make_large_block<false>},
    {"PinnedBuffer::~PinnedBuffer, write-combined", RUN(w.block.reset()), make_large_block<true>},
    {"PinnedBuffer::PinnedBuffer, that fits only without the cache",
     RUN(code_of([] { drop(PinnedBytes(512 * kib)); })),
     set_tight_limit},
    {"PinnedBuffer::PinnedBuffer, more than the machine has",
     [](World&) { EXPECT_ERROR(out_of_memory, drop(PinnedBytes(mib * gib))); },
     fill_cache},
    {"PinnedBuffer::record_stream", RUN(w.pinned.record_stream(w.s))},
    {"PinnedBuffer::device_pointer", RUN(w.pinned.device_pointer(w.device))},
    {"PinnedPool::statistics", RUN(PinnedPool::statistics())},
    {"PinnedPool::reset_peak", RUN(PinnedPool::reset_peak())},
    {"PinnedPool::set_limit", RUN(PinnedPool::set_limit(PinnedPool::statistics().in_use)), fill_cache},
    {"PinnedPool::limit", RUN(PinnedPool::limit())},
    {"PinnedPool::trim", RUN(PinnedPool::trim()), fill_cache},
    {"pinned_resource",
     [](World&) {
       void* const block = pinned_resource()->allocate(size);
       pinned_resource()->deallocate(block, size);
     }},
    {"PinnedAllocator::PinnedAllocator", RUN(PinnedAllocator<int>{})},
    {"PinnedAllocator::allocate", RUN(drop(std::vector<int, PinnedAllocator<int>>(size)))},
    {"PinnedAllocator::deallocate", RUN(PinnedAllocator<int>{}.deallocate(static_cast<int*>(w.memory_block), many_ints)),
     RUN(w.memory_block = PinnedAllocator<int>{}.allocate(many_ints))},
    {"Staging::trim", RUN(Staging::trim()), stage_once},
    {"Staging::set_options", RUN(Staging::set_options({})), stage_once},
    {"Staging::options", RUN(Staging::options())},
    // host_registration.hpp, managed_buffer.hpp, shared_buffer.hpp
    {"HostRegistration::HostRegistration", RUN(w.registration.emplace(w.registered))},
    OF(HostRegistration, registration->, data, make_registration),
    OF(HostRegistration, registration->, size_bytes, make_registration),
    {"HostRegistration::device_pointer", RUN(w.registration->device_pointer(w.device)), make_registration},
    {"ManagedBuffer::ManagedBuffer", RUN(w.managed_block.emplace(size, w.device))},
    {"ManagedBuffer::ManagedBuffer, more than the machine has",
     [](World& w) { EXPECT_NE(code_of([&] { drop(ManagedBuffer<char>(mib * gib, w.device)); }), nothing_thrown); }},
    {"ManagedBuffer::~ManagedBuffer",
     RUN(w.managed_block.reset()),
     RUN(w.managed_block.emplace(World::managed_or_none(w.device)))},
    OF(ManagedBuffer, managed., device),
    {"prefetch_bytes", RUN(prefetch_bytes(w.s, w.managed.data(), size, w.device))},
    {"prefetch", RUN(prefetch(w.s, w.managed, w.device))},
    {"advise_bytes", RUN(advise_bytes(w.managed.data(), size, MemoryAdvice::mostly_read, w.device))},
    {"advise", RUN(advise(w.managed, MemoryAdvice::mostly_read, w.device))},
    {"SharedBuffer::SharedBuffer", RUN(w.shared.emplace(size, w.device))},
    OF(SharedBuffer, shared->, ipc_handle, make_shared),
    {"SharedBuffer::from_ipc_handle", RUN(code_of([&] { return SharedBuffer<int>::from_ipc_handle(w.shared->ipc_handle()); })), make_shared},
    OF(SharedBuffer, shared->, is_opened, make_shared),
    OF(SharedBuffer, shared->, device, make_shared),
    {"SharedBuffer::span", RUN(fill(w.s, w.shared->span(), 1)), make_shared},
    // stream_pool.hpp, partition.hpp
    {"StreamPool::StreamPool", RUN(StreamPool{w.device, {.size = 2}})},
    {"StreamPool::operator=", RUN(*w.lone_pool = StreamPool{w.device, {.size = 1}}), make_pool},
    {"StreamPool::~StreamPool",
     [](World& w) {
       {
         const StreamLease lease = w.lone_pool->acquire();
         lease.wait_stream(w.s);
       }
       w.lone_pool.reset();
     },
     make_pool},
    {"StreamPool::acquire",
     [](World& w) {
       const StreamLease lease = w.pool.acquire();
       lease.wait_stream(w.s);
     }},
    OF(StreamPool, pool., device),
    OF(StreamPool, pool., size),
    OF(StreamPool, pool., leased),
    OF(StreamPool, pool., growth),
    {"StreamLease::StreamLease", RUN(StreamLease{std::move(*w.lease)}), make_lease},
    {"StreamLease::operator=", RUN(w.lease->wait_stream(w.s), *w.lease = w.pool.acquire()), make_lease},
    {"StreamLease::~StreamLease", RUN(w.lease->wait_stream(w.s), w.lease.reset()), make_lease},
    // overlap.hpp
    {"choose_overlap_strategy", RUN(choose_overlap_strategy(w.device, 4096, 2, false))},
    // hooks.hpp, profiler.hpp, statistics.hpp, trace.hpp
    {"HookLocation::HookLocation", RUN(HookLocation{})},
    {"HookLocation::~HookLocation", RUN(HookLocation{})},
    {"ProfilerRange::ProfilerRange", RUN(ProfilerRange{"never holds"})},
    {"ProfilerRange::~ProfilerRange", RUN(ProfilerRange{"never holds"})},
    {"TraceRange::TraceRange", RUN(TraceRange{w.s, "never holds"})},
    {"TraceRange::~TraceRange", RUN(TraceRange{w.s, "never holds"})},
    {"live_objects", RUN(live_objects())},
};

// What waits for a stream waits for that stream alone: each on `other`, and while memory is being
// given back.
const Operation own_waits[] = {
    OF(StreamRef, other., synchronize),
    {"StreamRef::synchronize_for", RUN(w.other.synchronize_for(patience))},
    {"StreamRef::synchronize_until", RUN(w.other.synchronize_until(Clock::now() + patience))},
    OF(EventBase, start., synchronize),
    {"EventBase::synchronize_for", RUN(w.start.synchronize_for(patience))},
    {"EventBase::synchronize_until", RUN(w.start.synchronize_until(Clock::now() + patience))},
    OF(Future, future., wait),
    {"Future::wait_for", RUN(w.future.wait_for(patience))},
    {"Future::wait_until", RUN(w.future.wait_until(Clock::now() + patience))},
    OF(Future, future., get),
    OF(Future, future., outcome),
    {"synchronize", RUN(w.other.use(), synchronize())},
    {"synchronize_for", RUN(w.other.use(), drop(synchronize_for(patience)))},
    {"synchronize_until", RUN(w.other.use(), drop(synchronize_until(Clock::now() + patience)))},
    {"get", RUN(get(w.other, w.a, 1))},
    {"StreamPool::acquire_for", RUN(w.pool.acquire_for(patience))},
    {"StreamPool::acquire_until", RUN(w.pool.acquire_until(Clock::now() + patience))},
    {"overlap",
     [](World& w) {
       PinnedInts in{4 * kib}, out{in.size()};
       w.other.use();
       overlap(in, out, {.chunk = 1024}, copy_chunk);
     }},
    {"overlap_bytes",
     [](World& w) {
       PinnedInts in{4 * kib}, out{in.size()};
       w.other.use();
       const AnyOverlapEnd inputs[] = {in};
       overlap_bytes(inputs, out, {.chunk = 1024},
                     [](StreamRef stream, const OverlapBytes& bytes, const OverlapChunk&) {
                       copy(stream, bytes.out, bytes.in[0]);
                     });
     }},
    {"NativeDeviceResource::allocate_sync",
     [](World& w) {
       const NativeDeviceResource resource{w.device};
       resource.deallocate_sync(resource.allocate_sync(size), size);
     }},
};

/// What waits for the work of other streams, and the sentence that says so.
struct Wait {
  const char* name;
  const char* sentence;
  Step run;
  Step prepare = nothing;
};
std::ostream& operator<<(std::ostream& out, const Wait& wait) { return out << wait.name; }
const Wait waits[] = {
    {"quiesce_for", "completion.hpp: It waits at most `timeout`, and returns false",
     RUN(quiesce_for(patience))},
    {"quiesce_until", "completion.hpp: The same until a point in time of any clock",
     RUN(quiesce_until(Clock::now() + patience))},
    {"partition",
     "partition.hpp: The first such call waits until the work of all streams of the device is "
     "complete",
     RUN(code_of(
         [&] { return partition(w.device, std::max(1, w.device.multiprocessor_count() / 4)); }))},
    {"DeviceBuffer::wait_for_uses",
     "memory.hpp: Waits until all streams that use this memory have completed the work",
     RUN(w.a.wait_for_uses())},
    {"Device::synchronize",
     "device.hpp: Waits until everything submitted to this device has completed",
     RUN(w.device.synchronize())},
    {"Device::synchronize_for", "device.hpp: As synchronize(), but waits at most `timeout`",
     RUN(w.device.synchronize_for(patience))},
    {"Device::synchronize_until", "device.hpp: The same until a point in time of any clock",
     RUN(w.device.synchronize_until(Clock::now() + patience))},
    {"HostRegistration::~HostRegistration",
     "host_registration.hpp: The destructor waits for all devices", RUN(w.registration.reset()),
     make_registration},
    {"HostRegistration::operator=", "host_registration.hpp: The destructor waits for all devices",
     RUN(*w.registration = HostRegistration{}), make_registration},
    {"SharedBuffer::~SharedBuffer", "shared_buffer.hpp: the destructor waits for the device",
     RUN(w.shared.reset()), make_shared},
};

/// Whether `f` returns in time on a thread of its own. If it does not, the gate is opened, so that
/// it can.
template <class F>
[[nodiscard]] bool returns_behind(Gate& gate, Device device, F f) {
  constexpr std::chrono::seconds limit{10};
  std::mutex mutex;
  std::condition_variable changed;
  bool returned = false;
  std::thread caller{[&] {
    try {
      device.use();
      f();
    } catch (const Error&) {  // a refusal
    }
    const std::lock_guard lock{mutex};
    returned = true;
    changed.notify_one();
  }};
  const bool in_time = [&] {
    std::unique_lock lock{mutex};
    return changed.wait_for(lock, limit, [&] { return returned; });
  }();
  gate.open();
  caller.join();
  return in_time;
}

class NeverHoldsBase : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    limit_ = PinnedPool::limit();
  }
  void TearDown() override {
    PinnedPool::set_limit(limit_);
    Conformance::TearDown();
  }
  static void expect_return(const Operation& operation, Where where) {
    World w;
    if (where == Where::behind_the_gate) w.s = w.work;
    w.device.synchronize();
    try {
      operation.prepare(w);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (where == Where::during_a_release) w.another_block.emplace(size);
    Gate gate{w.work};
    ASSERT_TRUE(gate.reached());
    if (where == Where::during_a_release) {
      w.another_block.reset();
      PinnedPool::trim();
    }
    EXPECT_TRUE(returns_behind(gate, w.device, [&] { operation.run(w); }))
        << "it waits for another stream's work";
    w.device.synchronize();
  }

 private:
  size_t limit_ = huge;
};

std::string name_of(const char* text) {
  std::string name = text;
  for (const auto& [sign, word] : {std::pair{"operator<<", "print"},
                                   {"operator=", "assign"},
                                   {"operator-", "minus"},
                                   {"~", "no_"}})
    if (const size_t at = name.find(sign); at != name.npos)
      name.replace(at, std::string{sign}.size(), word);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

class NeverHolds : public NeverHoldsBase,
                   public testing::WithParamInterface<std::tuple<Operation, Where>> {};
TEST_P(NeverHolds, ReturnsBehindAClosedGate) {
  expect_return(std::get<0>(GetParam()), std::get<1>(GetParam()));
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Operation, Where>>& info) {
  const char* const places[] = {"AnotherStream", "BehindTheGate", "DuringARelease"};
  return name_of(std::get<0>(info.param).name) + "_" +
         places[static_cast<int>(std::get<1>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(Operations, NeverHolds,
                         testing::Combine(testing::ValuesIn(operations),
                                          testing::Values(Where::another_stream,
                                                          Where::behind_the_gate,
                                                          Where::during_a_release)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(OwnWaits, NeverHolds,
                         testing::Combine(testing::ValuesIn(own_waits),
                                          testing::Values(Where::another_stream,
                                                          Where::during_a_release)),
                         name_of_case);

/// What the operations of `operations` and `own_waits` do in a capture that other code has begun:
/// the capture goes on, whether they are captured, run beside it, or are refused.
class ForeignCaptures
    : public NeverHoldsBase,
      public testing::WithParamInterface<std::tuple<Operation, test_support::CaptureMode>> {};
/// They ask for what no capture can record, as the vendors document it.
constexpr const char* wait_outside[] = {"StreamRef::wait_event",
                                        "StreamRef::wait_stream"};  // for work that is not captured
TEST_P(ForeignCaptures, NoOperationBreaksOne) {
  const auto& [operation, mode] = GetParam();
  for (const char* const each : wait_outside)
    if (operation.name == std::string{each}) GTEST_SKIP() << "it would wait for work outside";
  World w;
  w.device.synchronize();
  try {
    operation.prepare(w);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  w.device.synchronize();
  test_support::ForeignCapture captured{mode};
  ASSERT_EQ(captured.began, 0);
  std::string refusal;
  try {
    w.s = StreamRef::from_native(captured.stream());
    operation.run(w);
  } catch (const Error& error) {
    expect_sentence(error);
    refusal = error.what();
  }
  EXPECT_EQ(captured.state(), captured.intact) << refusal;
  w.s = w.other;
  drop(captured.end());
}
std::string name_of_captured(const testing::TestParamInfo<ForeignCaptures::ParamType>& info) {
  const char* const names[] = {"Global", "OwnThread", "Relaxed"};
  return name_of(std::get<0>(info.param).name) + "_" +
         names[static_cast<int>(std::get<1>(info.param))];
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ForeignCaptures);
/// None on the host backend, where every capture is one of the library.
std::vector<test_support::CaptureMode> modes() {
  using enum test_support::CaptureMode;
  if (test_support::vendor_function("StreamBeginCapture") == nullptr) return {};
  return {global, own_thread, relaxed};
}
INSTANTIATE_TEST_SUITE_P(Operations, ForeignCaptures,
                         testing::Combine(testing::ValuesIn(operations),
                                          testing::ValuesIn(modes())),
                         name_of_captured);
INSTANTIATE_TEST_SUITE_P(OwnWaits, ForeignCaptures,
                         testing::Combine(testing::ValuesIn(own_waits), testing::ValuesIn(modes())),
                         name_of_captured);

/// In a host function a release cannot wait. Nor may the next call of another thread have to make
/// it, and wait then.
TEST_F(NeverHoldsBase, WhatAHostFunctionDropsHoldsNoLaterCall) {
  SKIP_IF(!host_functions_overlap(), "the runtime runs one host function at a time");
  World w;
  w.shared.emplace(size, w.device);
  w.managed_block.emplace(World::managed_or_none(w.device));
  w.registration.emplace(w.registered);
  make_large_block<false>(w);
  w.device.synchronize();
  Gate gate{w.work};
  ASSERT_TRUE(gate.reached());
  w.other.launch_host_func(
      [&] { w.shared.reset(), w.managed_block.reset(), w.registration.reset(), w.block.reset(); });
  w.other.synchronize();
  EXPECT_TRUE(
      returns_behind(gate, w.device, [&] { fill(w.other, w.a, 1), w.other.synchronize(); }));
  w.work.synchronize();
  EXPECT_NO_ERROR(w.registration.emplace(w.registered)) << "the registration has ended";
}

/// They return once the other stream's work is complete.
class DocumentedWait : public NeverHoldsBase, public testing::WithParamInterface<Wait> {};
TEST_P(DocumentedWait, ReturnsOnceTheGateIsOpen) {
  World w;
  w.device.synchronize();
  GetParam().prepare(w);
  Gate gate{w.work};
  ASSERT_TRUE(gate.reached());
  drop(held_by(gate, [&] { GetParam().run(w); }));
  EXPECT_TRUE(w.work.synchronize_for(patience));
}
std::string name_of_wait(const testing::TestParamInfo<Wait>& info) {
  return name_of(info.param.name);
}
INSTANTIATE_TEST_SUITE_P(Waits, DocumentedWait, testing::ValuesIn(waits), name_of_wait);

}  // namespace conformance::never_holds_cases
