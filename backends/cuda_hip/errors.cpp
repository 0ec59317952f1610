// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <algorithm>
#include <array>

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

namespace {

struct Row {
  status number;
  errc code;
};

// By number. HIP adopted CUDA's numbers (and later some of its names), but each version of either
// header declares only a part of them, and the library must classify the errors of newer runtimes.
// 304 (operating system), 909 (timeout) and 999 (unknown) are omitted: they have no portable
// meaning.
constexpr std::array<Row, 132> rows{{
    {3, errc::no_device},   // the driver could not be initialised
    {34, errc::no_device},  // a stub library was found in place of the driver
    // No driver, or a driver older than the runtime; driver_version distinguishes the two.
    {35, errc::no_device},
    {46, errc::no_device},   // busy, or in exclusive or prohibited mode
    {100, errc::no_device},  // no device
    {102, errc::no_device},  // not licensed
    {127, errc::no_device},  // the driver failed to start
    {216, errc::no_device},  // in use by another thread, in exclusive mode
    {802, errc::no_device},  // the fabric is not up yet
    {805, errc::no_device},  // MPS: connection failed
    {806, errc::no_device},  // MPS: call failed
    {807, errc::no_device},  // MPS: server not ready
    {808, errc::no_device},  // MPS: too many clients
    {809, errc::no_device},  // MPS: too many connections

    {101, errc::invalid_device},  // no such device
    {911, errc::invalid_device},  // a device of another process or driver

    {1, errc::invalid_argument},    // invalid value
    {9, errc::invalid_argument},    // launch configuration
    {12, errc::invalid_argument},   // pitch
    {13, errc::invalid_argument},   // symbol
    {16, errc::invalid_argument},   // host pointer
    {17, errc::invalid_argument},   // device pointer
    {18, errc::invalid_argument},   // texture
    {19, errc::invalid_argument},   // texture binding
    {20, errc::invalid_argument},   // channel descriptor
    {21, errc::invalid_argument},   // copy direction
    {22, errc::invalid_argument},   // address of a constant
    {23, errc::invalid_argument},   // texture fetch
    {24, errc::invalid_argument},   // texture not bound
    {25, errc::invalid_argument},   // synchronisation
    {26, errc::invalid_argument},   // filter
    {27, errc::invalid_argument},   // normalisation
    {37, errc::invalid_argument},   // surface
    {43, errc::invalid_argument},   // variable of the same name
    {44, errc::invalid_argument},   // texture of the same name
    {45, errc::invalid_argument},   // surface of the same name
    {52, errc::invalid_argument},   // no configuration for a launch
    {65, errc::invalid_argument},   // launch depth
    {66, errc::invalid_argument},   // texture of a file's scope
    {67, errc::invalid_argument},   // surface of a file's scope
    {68, errc::invalid_argument},   // synchronisation depth
    {98, errc::invalid_argument},   // no such kernel
    {200, errc::invalid_argument},  // kernel image
    {207, errc::invalid_argument},  // array is mapped
    {208, errc::invalid_argument},  // already mapped
    {210, errc::invalid_argument},  // already acquired
    {211, errc::invalid_argument},  // not mapped
    {212, errc::invalid_argument},  // not mapped as an array
    {213, errc::invalid_argument},  // not mapped as a pointer
    {218, errc::invalid_argument},  // PTX; in HIP a kernel file
    {219, errc::invalid_argument},  // graphics context
    {300, errc::invalid_argument},  // source
    {301, errc::invalid_argument},  // file not found
    {302, errc::invalid_argument},  // symbol of a shared object
    {303, errc::invalid_argument},  // shared object
    {500, errc::invalid_argument},  // symbol not found
    {703, errc::invalid_argument},  // launch with an incompatible texture mode
    {712, errc::invalid_argument},  // host memory registered already
    {713, errc::invalid_argument},  // host memory not registered
    {720, errc::invalid_argument},  // cooperative launch too large
    {912, errc::invalid_argument},  // cluster size
    {914, errc::invalid_argument},  // type of a resource
    {915, errc::invalid_argument},  // configuration of a resource

    {201, errc::invalid_handle},  // no context, or one that was destroyed
    {202, errc::invalid_handle},  // the context is current already (HIP)
    {400, errc::invalid_handle},  // handle
    {401, errc::invalid_handle},  // the resource is in the wrong state
    {709, errc::invalid_handle},  // the context was destroyed

    {2, errc::out_of_memory},     // device or pinned memory
    {32, errc::out_of_memory},    // value too large
    {69, errc::out_of_memory},    // too many pending launches
    {701, errc::out_of_memory},   // registers or other resources of a launch
    {711, errc::out_of_memory},   // no room for another peer
    {1052, errc::out_of_memory},  // HSA's memory call failed (HIP)

    {4, errc::not_permitted},    // the runtime is being unloaded: the process exits
    {5, errc::not_permitted},    // profiler disabled
    {6, errc::not_permitted},    // profiler not initialised
    {7, errc::not_permitted},    // profiler started already
    {8, errc::not_permitted},    // profiler stopped already
    {708, errc::not_permitted},  // too late for this setting: the device is active
    {800, errc::not_permitted},  // not permitted, as inside a host function

    {28, errc::not_supported},   // mixed device execution
    {31, errc::not_supported},   // not yet implemented
    {49, errc::not_supported},   // a context of the driver interface that the runtime cannot use
    {103, errc::not_supported},  // software validity
    {205, errc::not_supported},  // buffer object cannot be mapped
    {206, errc::not_supported},  // buffer object cannot be unmapped
    {209, errc::not_supported},  // no kernel image for this device
    {215, errc::not_supported},  // limit
    {221, errc::not_supported},  // compiler not found
    {222, errc::not_supported},  // PTX version
    {223, errc::not_supported},  // compilation disabled
    {224, errc::not_supported},  // execution affinity
    {225, errc::not_supported},  // device side synchronisation
    {402, errc::not_supported},  // a query that would lose information
    {801, errc::not_supported},  // not supported
    {811, errc::not_supported},  // dynamic parallelism
    {812, errc::not_supported},  // dynamic parallelism's version
    {910, errc::not_supported},  // graph update: the graphs differ in more than arguments
    {913, errc::not_supported},  // function not loaded

    {600, errc::not_ready},

    {900, errc::capture},  // not while capturing
    {901, errc::capture},  // an earlier error invalidated the capture
    {902, errc::capture},  // would merge two captures
    {903, errc::capture},  // not captured on this stream
    {904, errc::capture},  // forked and not joined
    {905, errc::capture},  // would cross the capture's boundary
    {906, errc::capture},  // implicit dependency on the legacy stream
    {907, errc::capture},  // event of a capture
    {908, errc::capture},  // ended on another thread

    {217, errc::peer_access},  // these two devices cannot
    {704, errc::peer_access},  // enabled already
    {705, errc::peer_access},  // not enabled

    {36, errc::driver_too_old},   // this call needs a newer driver
    {803, errc::driver_too_old},  // kernel mode and user mode driver differ
    {804, errc::driver_too_old},  // forward compatibility is not for this device

    // Sticky errors: the context cannot be repaired, and only a new process helps.
    {53, errc::device_lost},    // an earlier launch failed
    {214, errc::device_lost},   // uncorrectable memory error
    {220, errc::device_lost},   // uncorrectable link error
    {226, errc::device_lost},   // a contained error
    {700, errc::device_lost},   // illegal address
    {702, errc::device_lost},   // launch timed out
    {710, errc::device_lost},   // assert
    {714, errc::device_lost},   // hardware stack
    {715, errc::device_lost},   // illegal instruction
    {716, errc::device_lost},   // misaligned address
    {717, errc::device_lost},   // address space
    {718, errc::device_lost},   // program counter
    {719, errc::device_lost},   // launch failed
    {721, errc::device_lost},   // tensor memory leak
    {810, errc::device_lost},   // MPS: this client was terminated
    {1053, errc::device_lost},  // HSA's call failed (HIP)
}};

constexpr bool is_less(const Row& left, const Row& right) noexcept {
  return left.number < right.number;
}

constexpr auto rows_by_number = [] {
  auto sorted = rows;
  std::sort(sorted.begin(), sorted.end(), is_less);
  return sorted;
}();
static_assert(std::adjacent_find(rows_by_number.begin(), rows_by_number.end(),
                                 [](const Row& left, const Row& right) {
                                   return left.number == right.number;
                                 }) == rows_by_number.end());

}  // namespace

errc classify(status s) noexcept {
  const auto found = std::lower_bound(rows_by_number.begin(), rows_by_number.end(),
                                      Row{s, errc::unknown}, is_less);
  return found != rows_by_number.end() && found->number == s ? found->code : errc::unknown;
}

CaptureFault capture_fault(status s) noexcept {
  switch (s) {
    case 901:
      return CaptureFault::broken;
    case 902:
      return CaptureFault::two_captures;
    case 905:
      return CaptureFault::outside;
    case 906:
      return CaptureFault::default_stream;
    case 907:
      return CaptureFault::ended;
    default:
      return CaptureFault::other;
  }
}

const char* error_name(status s) noexcept { return rt::error_name(static_cast<rt::error>(s)); }

const char* error_text(status s) noexcept { return rt::error_text(static_cast<rt::error>(s)); }

void forget_error(status s) noexcept {
  if (rt::peek_at_last_error() == static_cast<rt::error>(s))
    static_cast<void>(rt::get_last_error());
}

status take_last_error() noexcept { return rt::get_last_error(); }

bool is_not_ready(status s) noexcept { return s == rt::not_ready; }

}  // namespace runnel::inline RUNNEL_ABI::backend
