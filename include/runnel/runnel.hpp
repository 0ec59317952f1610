// SPDX-License-Identifier: Apache-2.0
/// Everything of runnel but the interop headers.
#pragma once

#include <runnel/config.hpp>
#include <runnel/copy.hpp>
#include <runnel/copy_batch.hpp>
#include <runnel/current.hpp>
#include <runnel/device.hpp>
#include <runnel/device_resource.hpp>
#include <runnel/error.hpp>
#include <runnel/event.hpp>
#include <runnel/format.hpp>
#include <runnel/host_registration.hpp>
#include <runnel/managed_buffer.hpp>
#include <runnel/memory.hpp>
#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>
#include <runnel/overlap.hpp>
#include <runnel/pinned_pool.hpp>
#include <runnel/pinned_resource.hpp>
#include <runnel/profiler.hpp>
#include <runnel/staging.hpp>
#include <runnel/statistics.hpp>
#include <runnel/stream.hpp>
#include <runnel/stream_pool.hpp>
