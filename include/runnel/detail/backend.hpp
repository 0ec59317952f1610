// SPDX-License-Identifier: Apache-2.0
/// THE WAIST: the functions that a backend must provide. A function stands for one call of the
/// runtime: it takes native handles and plain types, returns the runtime's status, decides nothing,
/// and touches no state of the library. A few make a second call, because the runtime needs two for
/// the purpose: the pool functions find the device's pool first; enabling or disabling peer access
/// clears the error "it is so already"; how the host waits is one of several flags, which are read
/// first; and a driver function is looked up at its first use. Ownership, argument checks, device
/// switching, event reuse and exceptions are written once, above. The linker checks that a backend
/// is complete. "The current device" is the calling thread's, as the runtime knows it.
#pragma once

#include <runnel/detail/memory_advice.hpp>
#include <runnel/error.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>

#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::backend {

/// 0 is success; anything else is the runtime's own number.
using status = int;
inline constexpr status ok = 0;

// Errors
/// The portable code of a status.
[[nodiscard]] errc classify(status) noexcept;
/// The runtime's own name, as in "cudaErrorMemoryAllocation". The string lives as long as the
/// process.
[[nodiscard]] const char* error_name(status) noexcept;
[[nodiscard]] const char* error_text(status) noexcept;
/// What a call that errc::capture refuses has to do with captures. `broken`: an earlier call has
/// broken the capture. `two_captures`, `outside`: the call would join two captures, or would wait
/// for what is no part of the capture; it has broken them. `default_stream`: a default stream would
/// take part. `ended`: the event marks a place in a capture that is over.
enum class CaptureFault { other, broken, two_captures, outside, default_stream, ended };
[[nodiscard]] CaptureFault capture_fault(status) noexcept;
/// Clears the thread's last error if it is this one. A pending error of the user's own calls stays.
void forget_error(status) noexcept;
/// Whether the status is a query's answer "not finished yet", which is no error.
[[nodiscard]] bool is_not_ready(status) noexcept;

// Devices
enum class Attribute {
  compute_capability_major,
  compute_capability_minor,
  async_engine_count,
  multiprocessor_count,
  hardware_queues,
  can_map_host_memory,
  can_pin_read_only_memory,
  pageable_memory_access,
  pageable_memory_access_uses_host_page_tables,
  stream_memory_operations,
  memory_pools,
  partitions,
};
[[nodiscard]] status device_count(int& count) noexcept;
[[nodiscard]] status get_device(int& device) noexcept;
[[nodiscard]] status set_device(int device) noexcept;
[[nodiscard]] status device_name(char* text, std::size_t size, int device) noexcept;
[[nodiscard]] status device_attribute(int& value, Attribute, int device) noexcept;
[[nodiscard]] status device_uuid(unsigned char (&bytes)[16], int device) noexcept;
// "" if the device is on no bus
[[nodiscard]] status device_pci_bus_id(char* text, std::size_t size, int device) noexcept;
// for the current device
[[nodiscard]] status host_wait(HostWait&) noexcept;
// for the current device
[[nodiscard]] status set_host_wait(HostWait) noexcept;
// of the current device
[[nodiscard]] status memory_info(std::size_t& free, std::size_t& total) noexcept;
// of the current device
[[nodiscard]] status priority_range(int& least, int& greatest) noexcept;
// the current device
[[nodiscard]] status device_synchronize() noexcept;
[[nodiscard]] status can_access_peer(int& can, int device, int peer) noexcept;
// from the current device; 0 if it already was
[[nodiscard]] status enable_peer_access(int peer) noexcept;
// from the current device; 0 if it was not enabled
[[nodiscard]] status disable_peer_access(int peer) noexcept;
[[nodiscard]] status runtime_version(int& version) noexcept;
[[nodiscard]] status driver_version(int& version) noexcept;  // 0 without a driver

// Streams
/// The null stream: of whichever device is current.
[[nodiscard]] native::stream default_stream() noexcept;
/// The calling thread's own, of whichever device is current.
[[nodiscard]] native::stream per_thread_default_stream() noexcept;
// on the current device
[[nodiscard]] status stream_create(native::stream&, bool blocking, int priority) noexcept;
/// A part of a device's multiprocessors, by the backend's own name. It is never destroyed.
using Part = void*;
/// Makes `count` parts with at least `wanted[i]` multiprocessors, and one of the rest; `granted`
/// says how many each has. No two share one. errc::invalid_argument if nothing is left for the
/// rest. Requires: the device is current, and has the attribute `partitions`.
[[nodiscard]] status device_divide(int device, const int* wanted, std::size_t count, int* granted,
                                   Part* parts) noexcept;
// on the part's device, which is current
[[nodiscard]] status stream_create_in(native::stream&, Part, int priority) noexcept;
/// Returns at once; submitted work completes.
[[nodiscard]] status stream_destroy(native::stream) noexcept;
[[nodiscard]] status stream_query(native::stream) noexcept;  // see is_not_ready
[[nodiscard]] status stream_synchronize(native::stream) noexcept;
[[nodiscard]] status stream_priority(native::stream, int& priority) noexcept;
[[nodiscard]] status stream_is_blocking(native::stream, bool& blocking) noexcept;
[[nodiscard]] status stream_device(native::stream, int& device) noexcept;
/// Whether submitted work goes into a graph instead of being run. The question does not change the
/// capture, not even a broken one.
[[nodiscard]] status stream_is_capturing(native::stream, bool& capturing) noexcept;
/// What a thread may call while streams are captured. Calls outside every stream's order
/// (allocations, frees, queries) are refused, and invalidate captures: in the mode `global` the
/// thread's own captures and other threads' global ones, in `own_only` the thread's own, in
/// `relaxed` none. Captures that were begun as relaxed do not count.
enum class CaptureMode { global, own_only, relaxed };
/// Swaps the calling thread's mode with this one.
[[nodiscard]] status exchange_capture_mode(CaptureMode& mode) noexcept;
/// The number of the capture that a stream takes part in; 0 if none does, or if it is broken. No
/// two captures of a process have the same number.
[[nodiscard]] status stream_capture_number(native::stream, std::uint64_t& number) noexcept;
/// From now on work that is submitted to the stream goes into a graph, and so does work of streams
/// that wait for it. `mode` says what other calls may be made meanwhile.
[[nodiscard]] status stream_begin_capture(native::stream, CaptureMode mode) noexcept;
/// Ends a capture on the stream and, except in the mode `relaxed`, on the thread where it began.
/// Also if it returns an error, because the capture was broken or because work of another stream
/// was not joined, no stream takes part in the capture any more; `graph` is null then.
[[nodiscard]] status stream_end_capture(native::stream, native::graph& graph) noexcept;
/// Calls `function(data)` once, after earlier work and before later work. In a capture: once for
/// each launch of the graph.
[[nodiscard]] status launch_host_func(native::stream, void (*function)(void*), void* data) noexcept;
/// Whether the runtime never calls the functions that wait in a stream once the device is lost.
[[nodiscard]] bool forgets_host_functions() noexcept;
/// Whether a thread may query a stream while another one begins or ends to capture it.
[[nodiscard]] bool can_query_beside_begin_of_capture() noexcept;
// Values in pinned memory and in memory of the device. Requires: the device has
// stream_memory_operations, and the stream is not captured.
/// Makes later work wait until the number at `place` is at least `value`, as a cyclic difference.
[[nodiscard]] status stream_wait_value(native::stream, std::uint32_t* place,
                                       std::uint32_t value) noexcept;
/// Writes the value once earlier work is complete and its writes are visible.
[[nodiscard]] status stream_write_value(native::stream, std::uint32_t* place,
                                        std::uint32_t value) noexcept;

// Names for profilers; without a profiler these do nothing
void name_stream(native::stream, const char* name) noexcept;
void push_range(const char* name) noexcept;
void pop_range() noexcept;

// What the vendor's profiling library tells of the devices' work. A backend that has no such
// library never has any.
enum class ActivityKind : unsigned char { kernel, copy, fill };
/// Work that a device has done, whoever submitted it.
struct Activity {
  ActivityKind kind;
  int device;
  std::uint32_t stream;  // as activity_stream() numbers it
  const char* name;      // a kernel's, as a linker spells it; else null
  std::size_t bytes;     // 0 for a kernel
  std::uint64_t begin;   // nanoseconds of activity_time()
  std::uint64_t end;
};
/// Takes activities. `lost` is how many others there were. It is called on any thread, also within
/// calls of the runtime.
using ActivitySink = void (*)(const Activity* list, std::size_t count, std::size_t lost) noexcept;
/// Asks the library for all work from now on. `text` becomes the library's name and version, or
/// else why there is none, which is empty in a backend that has no such library. Requires: it has
/// not returned true before.
[[nodiscard]] bool collect_activities(ActivitySink sink, char* text, std::size_t size) noexcept;
/// Calls the sink with what is complete. It waits for no work. `last`: it also ends the collection.
void deliver_activities(bool last) noexcept;
[[nodiscard]] bool activity_time(std::uint64_t& nanoseconds) noexcept;
/// Requires: the stream's device is current if its handle needs that.
[[nodiscard]] bool activity_stream(native::stream, std::uint32_t& number) noexcept;

// Events
struct EventKind {
  bool timed;
  bool blocking_wait;
  bool interprocess;
};
[[nodiscard]] status event_create(native::event&, EventKind) noexcept;  // on the current device
[[nodiscard]] status event_destroy(native::event) noexcept;
[[nodiscard]] status event_record(native::event, native::stream) noexcept;
[[nodiscard]] status stream_wait_event(native::stream, native::event) noexcept;
[[nodiscard]] status event_query(native::event) noexcept;  // see is_not_ready
[[nodiscard]] status event_synchronize(native::event) noexcept;
// Nodes of the graph that a stream is being captured into. Requires: the stream is being captured,
// and the event lives as long as the graph.
/// Each launch records the event at this place. For whoever waits or asks, the record is made at
/// the call that launches.
[[nodiscard]] status capture_event_record(native::event, native::stream) noexcept;
/// Each launch waits at this place for the record that is current at the call that launches.
[[nodiscard]] status capture_event_wait(native::stream, native::event) noexcept;
[[nodiscard]] status event_elapsed(float& milliseconds, native::event start,
                                   native::event stop) noexcept;

// Sharing with other processes
/// What the runtime of another process opens an event or memory by.
struct IpcBytes {
  unsigned char bytes[64];
};
/// Requires: the event was created as interprocess.
[[nodiscard]] status export_event(IpcBytes& handle, native::event) noexcept;
// on the current device
[[nodiscard]] status open_event(native::event&, const IpcBytes& handle) noexcept;
/// Memory that export_memory() takes, on the current device. It is freed by free_device.
[[nodiscard]] status malloc_exportable(void*&, std::size_t bytes) noexcept;
/// Requires: the pointer is the start of memory from malloc_exportable.
[[nodiscard]] status export_memory(IpcBytes& handle, void*) noexcept;
[[nodiscard]] status open_memory(void*&, const IpcBytes& handle) noexcept;  // on the current device
/// Closes what open_memory() opened. Requires: no work uses it.
[[nodiscard]] status close_memory(void*) noexcept;

// Graphs. One graph must not be used by two threads at a time.
enum class NodeKind {
  kernel,
  copy,
  fill,
  host_function,
  allocation,
  free,
  event_record,
  event_wait,
  graph,
  other
};
/// Stores up to `count` nodes, and how many there are. `nodes` may be null.
[[nodiscard]] status graph_nodes(native::graph, native::graph_node* nodes,
                                 std::size_t& count) noexcept;
/// The same for the edges: node `from[i]` comes before node `to[i]`. Both arrays may be null.
[[nodiscard]] status graph_edges(native::graph, native::graph_node* from, native::graph_node* to,
                                 std::size_t& count) noexcept;
[[nodiscard]] status graph_node_kind(native::graph_node, NodeKind& kind) noexcept;
[[nodiscard]] status graph_destroy(native::graph) noexcept;
/// The graph may be destroyed afterwards. Memory that a launch allocates and does not free is freed
/// by the next launch.
[[nodiscard]] status graph_instantiate(native::executable_graph&, native::graph) noexcept;
/// The node that a captured stream's next one comes after. Null if there is none, or if there are
/// several. `is_flat` says of a copy, if this thread has just made it, whether it is one of
/// contiguous bytes.
[[nodiscard]] status captured_node(native::stream, native::graph_node&, bool& is_flat) noexcept;
/// Says what a host function's node is called with from now on, in a graph that became a part of
/// another one.
using Relink = void* (*)(void* context, void (*function)(void*), void* data) noexcept;
/// Adds a copy of the graph as one node of the graph that the stream is being captured into, with
/// the arguments that the executable graph has. Requires: no node allocates, frees or is disabled.
[[nodiscard]] status capture_graph(native::stream, native::graph, native::executable_graph,
                                   Relink relink, void* context) noexcept;
/// What a node of the kind host_function calls.
[[nodiscard]] status graph_host_function(native::graph_node, void (*&function)(void*),
                                         void*& data) noexcept;
/// Gives a node of the graph, from the next launch on, the arguments of a node of another graph:
/// both are copies, fills or kernels, and copies are flat, which this thread has just made.
/// Launches under way are not affected. errc::invalid_argument, and nothing changed, if the runtime
/// cannot do that.
[[nodiscard]] status graph_change_node(native::executable_graph, native::graph_node,
                                       native::graph_node from, NodeKind) noexcept;
/// A disabled copy, fill or kernel does nothing, from the next launch on. errc::not_supported if
/// the runtime has no such call.
[[nodiscard]] status graph_enable_node(native::executable_graph, native::graph_node,
                                       bool enabled) noexcept;
/// Gives the executable graph the arguments of a graph of the same shape, from the next launch on.
/// errc::not_supported, and nothing changed, if they differ in more than that.
[[nodiscard]] status graph_update(native::executable_graph, native::graph) noexcept;
/// Runs the graph after earlier work of the stream and before later work of the stream.
[[nodiscard]] status graph_launch(native::executable_graph, native::stream) noexcept;
/// Whether the launches of one executable graph run one after the other, also on different streams.
[[nodiscard]] bool orders_graph_launches() noexcept;
/// Requires: all launches are complete.
[[nodiscard]] status executable_graph_destroy(native::executable_graph) noexcept;

// Memory
// pinned, for every device, coherent
[[nodiscard]] status malloc_host(void*&, std::size_t bytes) noexcept;
/// Pinned memory that is faster to write for the host and to read for devices, but very slow to
/// read for the host. A backend without such memory returns plain pinned memory.
[[nodiscard]] status malloc_host_write_combined(void*&, std::size_t bytes) noexcept;
[[nodiscard]] status free_host(void*) noexcept;  // memory of either kind
/// Whether freeing pinned or managed memory, and ending a registration, wait until all devices are
/// idle, and meanwhile hold each thread that calls the runtime.
[[nodiscard]] bool frees_wait_for_devices() noexcept;
/// Whether registered memory is as good as that of malloc_host(), which makes its pages slowly.
[[nodiscard]] bool prefers_registered_pages() noexcept;
/// Pins existing memory, for every device.
[[nodiscard]] status register_host(void*, std::size_t bytes) noexcept;
/// The same for memory that the process may only read. Devices may not write it either. Requires:
/// Attribute::can_pin_read_only_memory of the current device.
[[nodiscard]] status register_host_read_only(void*, std::size_t bytes) noexcept;
[[nodiscard]] status unregister_host(void*) noexcept;
/// The address of pinned memory on the current device.
[[nodiscard]] status host_device_pointer(void*& on_device, void* on_host) noexcept;
[[nodiscard]] status malloc_device(void*&, std::size_t bytes) noexcept;  // on the current device
/// Waits for the device.
[[nodiscard]] status free_device(void*) noexcept;
[[nodiscard]] status malloc_managed(void*&, std::size_t bytes) noexcept;  // freed by free_device
/// The number of the host where a call takes the number of a device or the host.
inline constexpr int host_place = -1;
/// Moves the pages of managed memory to a device or to the host.
[[nodiscard]] status prefetch_async(const void*, std::size_t bytes, int place,
                                    native::stream) noexcept;
[[nodiscard]] status advise(const void*, std::size_t bytes, MemoryAdvice, int place) noexcept;
[[nodiscard]] status malloc_async(void*&, std::size_t bytes, native::stream) noexcept;
[[nodiscard]] status free_async(void*, native::stream) noexcept;
/// How many bytes the device's pool keeps when a stream or device is waited for.
[[nodiscard]] status set_release_threshold(int device, std::size_t bytes) noexcept;
/// The bytes that the device's pool holds, used and unused.
[[nodiscard]] status pool_reserved(int device, std::size_t& bytes) noexcept;
/// Gives unused memory of the device's pool back to the system.
[[nodiscard]] status trim_pool(int device) noexcept;
/// Grants or revokes `peer` access to `device`'s pool, for which peer access alone does not
/// suffice.
[[nodiscard]] status allow_pool_access(int device, int peer, bool allow) noexcept;
[[nodiscard]] status pointer_info(PointerInfo&, const void*) noexcept;

// Copies and fills; bytes, width and height are never 0, pointers never null
[[nodiscard]] status copy_async(void* to, const void* from, std::size_t bytes,
                                native::stream) noexcept;
[[nodiscard]] status copy_2d_async(void* to, std::size_t to_pitch, const void* from,
                                   std::size_t from_pitch, std::size_t width, std::size_t height,
                                   native::stream) noexcept;
[[nodiscard]] status copy_peer_async(void* to, int to_device, const void* from, int from_device,
                                     std::size_t bytes, native::stream) noexcept;
/// `count` copies, in no order among themselves. Requires: none is from or to pageable memory.
/// errc::not_supported, with nothing enqueued, if the runtime has no such call, or none for this
/// stream.
[[nodiscard]] status copy_batch_async(void* const* to, const void* const* from,
                                      const std::size_t* bytes, std::size_t count,
                                      native::stream) noexcept;
/// `count` elements of `width` bytes, 1, 2 or 4, each set to the low bytes of `value`; `to` is
/// aligned to the width.
[[nodiscard]] status fill_async(void* to, std::uint32_t value, std::size_t width, std::size_t count,
                                native::stream) noexcept;
[[nodiscard]] status fill_2d_async(void* to, std::size_t pitch, unsigned char value,
                                   std::size_t width, std::size_t height, native::stream) noexcept;
/// Whether a copy from or to pageable memory returns before the data has moved.
[[nodiscard]] bool copies_pageable_asynchronously() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::backend
