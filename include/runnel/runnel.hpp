// SPDX-License-Identifier: Apache-2.0
/// \file
/// The main header of runnel. It leaves out what few programs need: communicator.hpp, mpi.hpp and
/// world.hpp (several processes), kokkos.hpp, execution.hpp (senders), coroutine.hpp,
/// stoppable.hpp, foreign_stream.hpp, hooks.hpp, trace.hpp, mdspan.hpp, overlap_bytes.hpp,
/// resource_adaptors.hpp.
///
/// Include this header, or the header of each concept that you use. A program goes through five
/// steps:
///
/// 1. Ask what there is: `Device::count()`, `Device{0}.name()`. Without a GPU, the host backend
/// provides a device that runs on threads.
/// 2. Create streams: `Stream up, down;`. Work in one stream runs in order; work in different
/// streams may run at the same time.
/// 3. Get memory. `DeviceBuffer<float> x(n, up);` allocates in the order of `up`. Copies accept any
/// host memory; a `PinnedBuffer` is the fastest.
/// 4. Enqueue work. `copy(up, x, values);` returns at once, for any kind of memory. Launch kernels
/// on the native handle, `kernel<<<grid, block, 0, up.native()>>>(x.data(), n);`, and host code
/// with `up.launch_host_func(f);`.
/// 5. Order and wait. `down.wait_stream(up);` makes later work of `down` run after the earlier work
///    of `up`; no thread waits. `down.synchronize();` makes the calling thread wait. Errors arrive
///    as exceptions that derive from `runnel::Error`.
///
/// Host memory must stay alive and unchanged until the copies that use it have completed. Buffers
/// and streams may be destroyed while work is pending: the work completes.
///
/// | To | look at |
/// |---|---|
/// | create, order and wait for streams | stream.hpp, event.hpp, stream_pool.hpp |
/// | write functions that take no stream argument | current.hpp |
/// | copy and fill memory | copy.hpp, copy_batch.hpp; staging.hpp has settings for pageable memory; mdspan.hpp |
/// | allocate memory | memory.hpp, managed_buffer.hpp, host_registration.hpp, pinned_pool.hpp, pinned_resource.hpp, device_resource.hpp |
/// | limit, count and log what is allocated | resource_adaptors.hpp |
/// | process data larger than the device | overlap.hpp; overlap_bytes.hpp |
/// | record work once and launch it many times | graph.hpp |
/// | get notified of completion without waiting | completion.hpp, keep.hpp; coroutine.hpp and stoppable.hpp |
/// | handle errors | error.hpp |
/// | use handles of other libraries | native.hpp, `from_native` of `StreamRef`, `Stream` and `Event`; foreign_stream.hpp |
/// | share memory and events with other processes | shared_buffer.hpp, ipc_handle.hpp, `Event::ipc_handle` |
/// | give streams a part of a device | partition.hpp |
/// | find missing waits | race_checker.hpp |
/// | find leaks, name things for a profiler | statistics.hpp, profiler.hpp |
///
/// docs/index.md shows a whole program and lists the guides.
#pragma once

#include <runnel/completion.hpp>
#include <runnel/config.hpp>
#include <runnel/copy.hpp>
#include <runnel/copy_batch.hpp>
#include <runnel/current.hpp>
#include <runnel/device.hpp>
#include <runnel/device_resource.hpp>
#include <runnel/error.hpp>
#include <runnel/event.hpp>
#include <runnel/format.hpp>
#include <runnel/graph.hpp>
#include <runnel/host_registration.hpp>
#include <runnel/ipc_handle.hpp>
#include <runnel/keep.hpp>
#include <runnel/managed_buffer.hpp>
#include <runnel/memory.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>
#include <runnel/overlap.hpp>
#include <runnel/partition.hpp>
#include <runnel/pinned_pool.hpp>
#include <runnel/pinned_resource.hpp>
#include <runnel/priority.hpp>
#include <runnel/profiler.hpp>
#include <runnel/race_checker.hpp>
#include <runnel/shared_buffer.hpp>
#include <runnel/staging.hpp>
#include <runnel/statistics.hpp>
#include <runnel/stream.hpp>
#include <runnel/stream_pool.hpp>
