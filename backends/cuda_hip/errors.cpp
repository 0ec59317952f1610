// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/backend.hpp>

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

// By number: HIP took CUDA's numbers over (and later some of its names), but each version of either header knows only a part of them,
// and a library must be able to name what a newer runtime answers.
errc classify(status s) noexcept {
  switch (s) {
    case 3:    // the driver could not be initialised
    case 34:   // a stub library in place of the driver
    case 35:   // no driver at all; also a driver older than the runtime, told apart by driver_version
    case 46:   // busy, or in exclusive or prohibited mode
    case 100:  // no device
    case 102:  // not licensed
    case 127:  // the driver failed to start
    case 216:  // in use by another thread, in exclusive mode
    case 802:  // the fabric is not up yet
    case 805:  // MPS: connection failed
    case 806:  // MPS: call failed
    case 807:  // MPS: server not ready
    case 808:  // MPS: too many clients
    case 809:  // MPS: too many connections
      return errc::no_device;

    case 101:  // no such device
    case 911:  // a device of another process or driver
      return errc::invalid_device;

    case 1:    // invalid value
    case 9:    // launch configuration
    case 12:   // pitch
    case 13:   // symbol
    case 16:   // host pointer
    case 17:   // device pointer
    case 18:   // texture
    case 19:   // texture binding
    case 20:   // channel descriptor
    case 21:   // copy direction
    case 22:   // address of a constant
    case 23:   // texture fetch
    case 24:   // texture not bound
    case 25:   // synchronisation
    case 26:   // filter
    case 27:   // normalisation
    case 37:   // surface
    case 43:   // variable of the same name
    case 44:   // texture of the same name
    case 45:   // surface of the same name
    case 52:   // no configuration for a launch
    case 65:   // launch depth
    case 66:   // texture of a file's scope
    case 67:   // surface of a file's scope
    case 68:   // synchronisation depth
    case 98:   // no such kernel
    case 200:  // kernel image
    case 207:  // array is mapped
    case 208:  // already mapped
    case 210:  // already acquired
    case 211:  // not mapped
    case 212:  // not mapped as an array
    case 213:  // not mapped as a pointer
    case 218:  // PTX; in HIP a kernel file
    case 219:  // graphics context
    case 300:  // source
    case 301:  // file not found
    case 302:  // symbol of a shared object
    case 303:  // shared object
    case 500:  // symbol not found
    case 703:  // launch with an incompatible texture mode
    case 712:  // host memory registered already
    case 713:  // host memory not registered
    case 720:  // cooperative launch too large
    case 910:  // graph update
    case 912:  // cluster size
    case 914:  // type of a resource
    case 915:  // configuration of a resource
      return errc::invalid_argument;

    case 201:  // no context, or one that was destroyed
    case 202:  // the context is current already (HIP)
    case 400:  // handle
    case 401:  // the resource is in the wrong state
    case 709:  // the context was destroyed
      return errc::invalid_handle;

    case 2:     // device or pinned memory
    case 32:    // value too large
    case 69:    // too many pending launches
    case 701:   // registers or other resources of a launch
    case 711:   // no room for another peer
    case 1052:  // HSA's memory call failed (HIP)
      return errc::out_of_memory;

    case 4:    // the runtime is being unloaded: the process exits
    case 5:    // profiler disabled
    case 6:    // profiler not initialised
    case 7:    // profiler started already
    case 8:    // profiler stopped already
    case 708:  // too late for this setting: the device is active
    case 800:  // not permitted, as inside a host function
      return errc::not_permitted;

    case 28:   // mixed device execution
    case 31:   // not yet implemented
    case 49:   // a context of the driver interface that the runtime cannot use
    case 103:  // software validity
    case 205:  // buffer object cannot be mapped
    case 206:  // buffer object cannot be unmapped
    case 209:  // no kernel image for this device
    case 215:  // limit
    case 221:  // compiler not found
    case 222:  // PTX version
    case 223:  // compilation disabled
    case 224:  // execution affinity
    case 225:  // device side synchronisation
    case 402:  // a query that would lose information
    case 801:  // not supported
    case 811:  // dynamic parallelism
    case 812:  // dynamic parallelism's version
    case 913:  // function not loaded
      return errc::not_supported;

    case 600:
      return errc::not_ready;

    case 900:  // not while capturing
    case 901:  // an earlier error invalidated the capture
    case 902:  // would merge two captures
    case 903:  // not captured on this stream
    case 904:  // forked and not joined
    case 905:  // would cross the capture's boundary
    case 906:  // implicit dependency on the legacy stream
    case 907:  // event of a capture
    case 908:  // ended on another thread
      return errc::capture;

    case 217:  // these two devices cannot
    case 704:  // enabled already
    case 705:  // not enabled
      return errc::peer_access;

    case 36:   // this call needs a newer driver
    case 803:  // kernel mode and user mode driver differ
    case 804:  // forward compatibility is not for this device
      return errc::driver_too_old;

    // Sticky: the context is beyond repair, and only a new process helps.
    case 53:    // an earlier launch failed
    case 214:   // uncorrectable memory error
    case 220:   // uncorrectable link error
    case 226:   // a contained error
    case 700:   // illegal address
    case 702:   // launch timed out
    case 710:   // assert
    case 714:   // hardware stack
    case 715:   // illegal instruction
    case 716:   // misaligned address
    case 717:   // address space
    case 718:   // program counter
    case 719:   // launch failed
    case 721:   // tensor memory leak
    case 810:   // MPS: this client was terminated
    case 1053:  // HSA's call failed (HIP)
      return errc::device_lost;

    // 304 (operating system), 909 (timeout) and 999 (unknown) among them: nothing portable follows from those
    default:
      return errc::unknown;
  }
}

const char* error_name(status s) noexcept { return rt::error_name(static_cast<rt::error>(s)); }

const char* error_text(status s) noexcept { return rt::error_text(static_cast<rt::error>(s)); }

void forget_error(status s) noexcept {
  if (rt::peek_at_last_error() == static_cast<rt::error>(s)) static_cast<void>(rt::get_last_error());
}

bool is_not_ready(status s) noexcept { return s == rt::not_ready; }

}  // namespace runnel::inline RUNNEL_ABI::backend
