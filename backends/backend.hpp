// SPDX-License-Identifier: Apache-2.0
/// The backend interface: the functions that a backend must provide. Each function wraps one call
/// of the runtime: it takes native handles and plain types, returns the runtime's status, makes no
/// decisions, and accesses no state of the library. A few need two calls of the runtime: the pool
/// functions get the device's pool first; enabling or disabling peer access clears the error that
/// it was done already; set_host_wait() reads the device's other flags first; and a driver function
/// is looked up at its first use. Ownership, argument checks, device switching, event reuse and
/// exceptions are implemented once, in src/. The linker checks that a backend is complete. "The
/// current device" is the runtime's current device of the calling thread.
#pragma once

#include <runnel/detail/memory_advice.hpp>
#include <runnel/error.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>

#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::backend {

/// 0 is success; any other value is the runtime's own error number.
using status = int;
inline constexpr status ok = 0;

// Errors
/// The portable code of a status.
[[nodiscard]] errc classify(status) noexcept;
/// The runtime's own name of the status, such as "cudaErrorMemoryAllocation". The string lives as
/// long as the process.
[[nodiscard]] const char* error_name(status) noexcept;
[[nodiscard]] const char* error_text(status) noexcept;
/// The reason why the runtime refused a call with a status that classify() maps to errc::capture.
/// `broken`: an earlier call has broken the capture. `two_captures`, `outside`: the call would have
/// joined two captures, or waited for work outside the capture; it has broken the captures.
/// `default_stream`: a default stream would have become part of the capture. `ended`: the event
/// marks a position in a capture that has ended.
enum class CaptureFault { other, broken, two_captures, outside, default_stream, ended };
[[nodiscard]] CaptureFault capture_fault(status) noexcept;
/// Clears the thread's last error if it is this status. A pending error of the user's own calls
/// stays.
void forget_error(status) noexcept;
/// The thread's last error, which is cleared, or ok: that of a kernel launch, which returns none.
[[nodiscard]] status take_last_error() noexcept;
/// Whether the status is the answer of a query that work is not complete, which is not an error.
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
/// For texts: what shows a container its devices, and the environment variable that hides devices.
[[nodiscard]] const char* container_options() noexcept;
[[nodiscard]] const char* hiding_variable() noexcept;
[[nodiscard]] status get_device(int& device) noexcept;
[[nodiscard]] status set_device(int device) noexcept;
[[nodiscard]] status device_name(char* text, std::size_t size, int device) noexcept;
[[nodiscard]] status device_attribute(int& value, Attribute, int device) noexcept;
[[nodiscard]] status device_uuid(unsigned char (&bytes)[16], int device) noexcept;
// Returns "" if the device is on no bus.
[[nodiscard]] status device_pci_bus_id(char* text, std::size_t size, int device) noexcept;
// Of the current device.
[[nodiscard]] status host_wait(HostWait&) noexcept;
// Of the current device.
[[nodiscard]] status set_host_wait(HostWait) noexcept;
/// Requires: the device is current. `free` includes what the device's pool keeps unused.
[[nodiscard]] status memory_info(std::size_t& free, std::size_t& total, int device) noexcept;
// Of the current device.
[[nodiscard]] status priority_range(int& least, int& greatest) noexcept;
// Of the current device.
[[nodiscard]] status device_synchronize() noexcept;
[[nodiscard]] status can_access_peer(int& can, int device, int peer) noexcept;
// From the current device. Returns 0 if access was enabled already.
[[nodiscard]] status enable_peer_access(int peer) noexcept;
// From the current device. Returns 0 if access was not enabled.
[[nodiscard]] status disable_peer_access(int peer) noexcept;
[[nodiscard]] status runtime_version(int& version) noexcept;
[[nodiscard]] status driver_version(int& version) noexcept;  // 0 without a driver.

// Streams
/// The null stream, which belongs to the current device at each use.
[[nodiscard]] native::stream default_stream() noexcept;
/// The calling thread's own default stream, which belongs to the current device at each use.
[[nodiscard]] native::stream per_thread_default_stream() noexcept;
// On the current device.
[[nodiscard]] status stream_create(native::stream&, bool blocking, int priority) noexcept;
/// The backend's handle of a part of a device's multiprocessors. Parts are never destroyed.
using Part = void*;
/// Creates `count` parts with at least `wanted[i]` multiprocessors, and one more part of the
/// remaining ones. `granted` receives the number of each part. No two parts share a multiprocessor.
/// Fails with errc::invalid_argument if none remain for the last part. Requires: the device is
/// current, and has the attribute `partitions`.
[[nodiscard]] status device_divide(int device, const int* wanted, std::size_t count, int* granted,
                                   Part* parts) noexcept;
// Requires: the part's device is current.
[[nodiscard]] status stream_create_in(native::stream&, Part, int priority) noexcept;
/// Does not wait; submitted work completes.
[[nodiscard]] status stream_destroy(native::stream) noexcept;
[[nodiscard]] status stream_query(native::stream) noexcept;  // See is_not_ready().
[[nodiscard]] status stream_synchronize(native::stream) noexcept;
[[nodiscard]] status stream_priority(native::stream, int& priority) noexcept;
[[nodiscard]] status stream_is_blocking(native::stream, bool& blocking) noexcept;
[[nodiscard]] status stream_device(native::stream, int& device) noexcept;
/// Whether submitted work is recorded into a graph instead of being run. The query does not affect
/// the capture, not even a broken one.
[[nodiscard]] status stream_is_capturing(native::stream, bool& capturing) noexcept;
/// Which calls a thread may make while streams are being captured. Calls that belong to no stream's
/// order (allocations, frees, queries) are refused, and invalidate captures: in the mode `global`
/// the thread's own captures and the global ones of other threads, in `own_only` the thread's own
/// captures, in `relaxed` none. Captures that were begun as relaxed are not affected.
enum class CaptureMode { global, own_only, relaxed };
/// Swaps the calling thread's mode with `mode`.
[[nodiscard]] status exchange_capture_mode(CaptureMode& mode) noexcept;
/// The number of the capture that a stream takes part in; 0 if there is none, or if it is broken.
/// No two captures of a process have the same number.
[[nodiscard]] status stream_capture_number(native::stream, std::uint64_t& number) noexcept;
/// From now on, work that is submitted to the stream is recorded into a graph, and so is work of
/// streams that wait for it. `mode`: which other calls may be made meanwhile.
[[nodiscard]] status stream_begin_capture(native::stream, CaptureMode mode) noexcept;
/// Ends a capture on the stream. Requires: the capture began on this stream and, except in the mode
/// `relaxed`, on this thread. It may return an error, because the capture was broken or because
/// work of another stream was not joined. In this case, too, no stream takes part in the capture
/// any more, and `graph` is null.
[[nodiscard]] status stream_end_capture(native::stream, native::graph& graph) noexcept;
/// Enqueues a call of `function(data)`, which runs after earlier work and before later work. In a
/// capture it runs once for each launch of the graph.
[[nodiscard]] status launch_host_func(native::stream, void (*function)(void*), void* data) noexcept;
/// Whether the runtime, once the device is lost, never calls the host functions that are enqueued
/// in streams.
[[nodiscard]] bool forgets_host_functions() noexcept;
/// Whether a thread may query a stream while another one begins or ends to capture it.
[[nodiscard]] bool can_query_beside_begin_of_capture() noexcept;
// Values in pinned memory and in memory of the device. Requires: the device has
// stream_memory_operations, and the stream is not being captured.
/// Makes later work wait until the number at `place` is at least `value`, compared cyclically.
[[nodiscard]] status stream_wait_value(native::stream, std::uint32_t* place,
                                       std::uint32_t value) noexcept;
/// Writes the value once earlier work is complete and its writes are visible.
[[nodiscard]] status stream_write_value(native::stream, std::uint32_t* place,
                                        std::uint32_t value) noexcept;

// Names for profilers. Without a profiler these functions do nothing.
void name_stream(native::stream, const char* name) noexcept;
void push_range(const char* name) noexcept;
void pop_range() noexcept;

// Records of the devices' work, from the vendor's profiling library. A backend without such a
// library never delivers any.
enum class ActivityKind : unsigned char { kernel, copy, fill };
/// Work that a device has completed, submitted by any code.
struct Activity {
  ActivityKind kind;
  int device;
  std::uint32_t stream;  // The number that activity_stream() returns.
  const char* name;      // A kernel's mangled name; otherwise null.
  std::size_t bytes;     // 0 for a kernel.
  std::uint64_t begin;   // In nanoseconds, on the clock of activity_time().
  std::uint64_t end;
};
/// Receives activities. `lost` is the number of activities that were dropped. It is called on any
/// thread, also within calls of the runtime.
using ActivitySink = void (*)(const Activity* list, std::size_t count, std::size_t lost) noexcept;
/// Starts the collection of activities. `text` receives the name and version of the profiling
/// library, or, if the call returns false, the reason; the reason is empty in a backend without
/// such a library. Requires: it has not returned true before.
[[nodiscard]] bool collect_activities(ActivitySink sink, char* text, std::size_t size) noexcept;
/// Calls the sink with the activities that are complete. It does not wait for work. `last`: whether
/// it also ends the collection.
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
[[nodiscard]] status event_create(native::event&, EventKind) noexcept;  // On the current device.
[[nodiscard]] status event_destroy(native::event) noexcept;
[[nodiscard]] status event_record(native::event, native::stream) noexcept;
[[nodiscard]] status stream_wait_event(native::stream, native::event) noexcept;
[[nodiscard]] status event_query(native::event) noexcept;  // See is_not_ready().
[[nodiscard]] status event_synchronize(native::event) noexcept;
// Nodes of the graph that a stream is being captured into. Requires: the stream is being captured,
// and the event lives as long as the graph.
/// Each launch records the event at this position. For waits and queries, the record takes effect
/// when the graph is launched.
[[nodiscard]] status capture_event_record(native::event, native::stream) noexcept;
/// Each launch waits at this position for the record that is current when the graph is launched.
[[nodiscard]] status capture_event_wait(native::stream, native::event) noexcept;
/// Makes the graph own an object: `destroy(object)` is called, perhaps on a thread of the runtime,
/// once the graph, its copies and its launches have ended, and also after an error. The runtime
/// must not be called there. Fails with errc::not_supported if the runtime has no such call.
[[nodiscard]] status capture_owner(native::stream, void* object, void (*destroy)(void*)) noexcept;
[[nodiscard]] status event_elapsed(float& milliseconds, native::event start,
                                   native::event stop) noexcept;

// Sharing with other processes
/// The handle with which the runtime of another process opens an event or memory.
struct IpcBytes {
  unsigned char bytes[64];
};
/// Requires: the event was created as interprocess.
[[nodiscard]] status export_event(IpcBytes& handle, native::event) noexcept;
// On the current device.
[[nodiscard]] status open_event(native::event&, const IpcBytes& handle) noexcept;
/// Allocates memory on the current device that export_memory() accepts. It is freed by
/// free_device().
[[nodiscard]] status malloc_exportable(void*&, std::size_t bytes) noexcept;
/// Requires: the pointer is the start of a block from malloc_exportable().
[[nodiscard]] status export_memory(IpcBytes& handle, void*) noexcept;
[[nodiscard]] status open_memory(void*&,
                                 const IpcBytes& handle) noexcept;  // On the current device.
/// Closes memory that open_memory() has opened. Requires: no work uses it.
[[nodiscard]] status close_memory(void*) noexcept;

// Graphs. Requires: two threads do not use one graph at a time.
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
/// Stores up to `count` nodes in `nodes`, which may be null, and sets `count` to the number of
/// nodes.
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
/// Returns the new argument of a host function, when its graph is copied into another graph.
using Relink = void* (*)(void* context, void (*function)(void*), void* data) noexcept;
/// Adds a copy of the graph as one node to the graph that the stream is being captured into.
/// Requires: no node allocates or frees.
[[nodiscard]] status capture_graph(native::stream, native::graph, Relink relink,
                                   void* context) noexcept;
/// Sets the arguments of the executable graph, from the next launch on, to those of a graph with
/// the same topology. If the graphs differ in more than their arguments, the call fails with
/// errc::not_supported and changes nothing.
[[nodiscard]] status graph_update(native::executable_graph, native::graph) noexcept;
/// Enqueues the graph: it runs after earlier and before later work of the stream.
[[nodiscard]] status graph_launch(native::executable_graph, native::stream) noexcept;
/// Whether the launches of one executable graph run one after the other, also on different streams.
[[nodiscard]] bool orders_graph_launches() noexcept;
/// Requires: all launches are complete.
[[nodiscard]] status executable_graph_destroy(native::executable_graph) noexcept;

// Memory
/// Allocates pinned, coherent memory for all devices.
[[nodiscard]] status malloc_host(void*&, std::size_t bytes) noexcept;
/// Pinned memory that is faster to write for the host and to read for devices, but very slow to
/// read for the host. A backend without such memory returns plain pinned memory.
[[nodiscard]] status malloc_host_write_combined(void*&, std::size_t bytes) noexcept;
[[nodiscard]] status free_host(void*) noexcept;  // Memory of either kind.
/// Whether freeing pinned or managed memory, and ending a registration, wait until all devices are
/// idle, and meanwhile block every other thread that calls the runtime.
[[nodiscard]] bool frees_wait_for_devices() noexcept;
/// Whether registered memory is preferable: it is as fast as that of malloc_host(), which allocates
/// its pages slowly.
[[nodiscard]] bool prefers_registered_pages() noexcept;
/// Pins existing memory, for all devices.
[[nodiscard]] status register_host(void*, std::size_t bytes) noexcept;
/// The same for memory that the process may only read. Devices must not write it either. Requires:
/// the current device has Attribute::can_pin_read_only_memory.
[[nodiscard]] status register_host_read_only(void*, std::size_t bytes) noexcept;
[[nodiscard]] status unregister_host(void*) noexcept;
/// The address of pinned memory on the current device.
[[nodiscard]] status host_device_pointer(void*& on_device, void* on_host) noexcept;
[[nodiscard]] status malloc_device(void*&, std::size_t bytes) noexcept;  // On the current device.
/// Waits for the device.
[[nodiscard]] status free_device(void*) noexcept;
[[nodiscard]] status malloc_managed(void*&, std::size_t bytes) noexcept;  // Freed by free_device().
/// Stands for the host in calls that take the number of a device or the host.
inline constexpr int host_place = -1;
/// Moves the pages of managed memory to a device or to the host.
[[nodiscard]] status prefetch_async(const void*, std::size_t bytes, int place,
                                    native::stream) noexcept;
[[nodiscard]] status advise(const void*, std::size_t bytes, MemoryAdvice, int place) noexcept;
/// From the library's pool of the device. Requires, as set_release_threshold() and
/// allow_pool_access(), which may also make the pool: the device is current.
[[nodiscard]] status malloc_async(void*&, std::size_t bytes, int device, native::stream) noexcept;
[[nodiscard]] status free_async(void*, native::stream) noexcept;
/// Sets how many unused bytes the device's pool keeps when a stream or device is synchronized.
[[nodiscard]] status set_release_threshold(int device, std::size_t bytes) noexcept;
/// The size of the device's pool in bytes, used and unused.
[[nodiscard]] status pool_reserved(int device, std::size_t& bytes) noexcept;
/// Returns unused memory of the device's pool to the system.
[[nodiscard]] status trim_pool(int device) noexcept;
/// Grants or revokes `peer`'s access to `device`'s pool, and to the runtime's default one.
/// enable_peer_access() does not cover pools.
[[nodiscard]] status allow_pool_access(int device, int peer, bool allow) noexcept;
[[nodiscard]] status pointer_info(PointerInfo&, const void*) noexcept;

// Copies and fills. Requires: bytes, width and height are not 0, and pointers are not null.
[[nodiscard]] status copy_async(void* to, const void* from, std::size_t bytes,
                                native::stream) noexcept;
[[nodiscard]] status copy_2d_async(void* to, std::size_t to_pitch, const void* from,
                                   std::size_t from_pitch, std::size_t width, std::size_t height,
                                   native::stream) noexcept;
[[nodiscard]] status copy_peer_async(void* to, int to_device, const void* from, int from_device,
                                     std::size_t bytes, native::stream) noexcept;
/// Enqueues `count` copies that are not ordered among themselves. Requires: none is from or to
/// pageable memory. If the runtime has no such call, or none for this stream, it fails with
/// errc::not_supported and enqueues nothing.
[[nodiscard]] status copy_batch_async(void* const* to, const void* const* from,
                                      const std::size_t* bytes, std::size_t count,
                                      native::stream) noexcept;
/// Sets `count` elements of `width` bytes to the low bytes of `value`. Requires: `width` is 1, 2 or
/// 4, and `to` is aligned to it.
[[nodiscard]] status fill_async(void* to, std::uint32_t value, std::size_t width, std::size_t count,
                                native::stream) noexcept;
[[nodiscard]] status fill_2d_async(void* to, std::size_t pitch, unsigned char value,
                                   std::size_t width, std::size_t height, native::stream) noexcept;
/// Whether a copy from or to pageable memory may return before the data has moved.
[[nodiscard]] bool copies_pageable_asynchronously() noexcept;
/// Whether a copy of other code to pageable memory is surely complete when its call returns.
[[nodiscard]] bool copies_to_pageable_are_complete() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::backend
